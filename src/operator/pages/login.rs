//! The login: a token opens a session. Wrong ones are counted against their address.

use crate::edge::{Head, Response};
use crate::operator::answer::{Outcome, html as answer, see};
use crate::operator::ask::Ask;
use crate::operator::layout::{Sheet, document, href};
use maud::html;

/// To the login, and back to where they wanted to go.
pub(in crate::operator) fn redirect(head: &Head) -> Response {
    if head.path() == "/" { see("/login") } else { see(&href("/login", &[("next", head.target())])) }
}

/// Only a path of ours is gone to after a login.
fn local(next: &str) -> &str {
    let fine = next.starts_with('/')
        && !next.starts_with("//")
        && next.bytes().all(|b| (0x21..0x7f).contains(&b) && b != b'\\' && b != b'"');
    if fine { next } else { "/" }
}

fn page(next: &str, wrong: Option<(u16, &str)>) -> Response {
    let content = html! {
        div.login {
            form.note method="post" action="/login" {
                @if let Some((_, wrong)) = wrong { p.warn role="alert" { "! " (wrong) "." } }
                input type="hidden" name="next" value=(next);
                label { span { "Your name, for the audit" } input type="text" name="name" autocomplete="username" maxlength="60"; }
                label { span { "Token" } input type="password" name="token" autocomplete="current-password" required autofocus; }
                button { "Log in" }
                p.hint { "The token is what " code { "[operator] token" } " names in the configuration." }
            }
        }
    };
    let sheet = Sheet {
        title: "Log in",
        nav: "",
        what: "postonce receives payment webhooks and posts each one to a ledger exactly once.",
        again: None,
        content,
    };
    answer(wrong.map_or(200, |(status, _)| status), document(None, sheet))
}

/// The form.
pub(in crate::operator) fn form(ask: &Ask) -> Outcome {
    ask.only(&["next"])?;
    if !ask.who.name.is_empty() {
        return Ok(see(local(ask.typed("next"))));
    }
    Ok(page(local(ask.typed("next")), None))
}

/// What the form sends.
pub(in crate::operator) fn enter(ask: &Ask) -> Outcome {
    let next = local(ask.field("next").unwrap_or("/"));
    let role = match ask.app.access.try_token(ask.field("token").unwrap_or_default(), ask.client.address) {
        Ok(role) => role,
        Err(failure) => return Ok(failure.with_headers(page(next, Some((failure.status, &failure.detail))))),
    };
    let name: String = ask.field("name").unwrap_or("operator").chars().filter(|c| !c.is_control()).take(60).collect();
    let cookie = ask.app.access.log_in(ask.head, &name, role);
    Ok(see(next).with_header("Set-Cookie", cookie))
}

/// Ends the session.
pub(in crate::operator) fn leave(ask: &Ask) -> Outcome {
    ask.app.access.log_out(ask.head);
    let gone = format!("{}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0", crate::operator::access::COOKIE);
    Ok(see("/login").with_header("Set-Cookie", gone))
}

#[cfg(test)]
mod tests {
    use super::local;

    #[test]
    fn a_login_leads_to_pages_of_ours_only() {
        assert_eq!(local("/events?id=x"), "/events?id=x");
        for foreign in ["//evil.example", "https://evil.example", "/\\evil", "javascript:alert(1)", "/a\r\nX: y", ""] {
            assert_eq!(local(foreign), "/", "{foreign:?}");
        }
    }
}
