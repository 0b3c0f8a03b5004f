//! The frame of every page and the small parts that pages are made of: states, money, times, lists.

use super::access::{Role, Who};
use super::answer::Failure;
use super::ask::{Ask, cursor};
use crate::clock::{rfc3339, wall};
use crate::event::Millis;
use crate::money::{Currency, Money};
use crate::store::search::Page;
use maud::{DOCTYPE, Markup, html};

/// The pages, in the order of the navigation.
const NAV: &[(&str, &str)] = &[
    ("/", "Today"),
    ("/events", "Events"),
    ("/ledger", "Ledger"),
    ("/entities", "Entities"),
    ("/outbox", "Outbox"),
    ("/dead", "Dead letters"),
    ("/settlement", "Settlement"),
    ("/sources", "Sources"),
    ("/health", "Health"),
    ("/audit", "Audit"),
];

/// The sheet's address changes with its content, so that it can be kept.
pub(super) const STYLE: &str = concat!("/style.css?", env!("CARGO_PKG_VERSION"));

/// A page before it is framed.
pub(super) struct Sheet<'a> {
    /// What stands in the window's title and as the heading.
    pub title: &'a str,
    /// The page of the navigation it belongs to.
    pub nav: &'a str,
    /// What this page is, for those who see it for the first time.
    pub what: &'a str,
    /// Load it again after so many seconds.
    pub again: Option<u32>,
    pub content: Markup,
}

/// The whole document.
pub(super) fn document(who: Option<&Who>, sheet: Sheet) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if let Some(seconds) = sheet.again { meta http-equiv="refresh" content=(seconds); }
                title { (sheet.title) " · postonce" }
                link rel="stylesheet" href=(STYLE);
                link rel="icon" type="image/svg+xml" href="/favicon.svg";
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                @if let Some(who) = who.filter(|who| !who.name.is_empty()) {
                    header.side {
                        p.brand { a href="/" { "postonce" } }
                        nav aria-label="Pages" {
                            ul {
                                @for (href, name) in NAV {
                                    li { a href=(href) aria-current=[(*href == sheet.nav).then_some("page")] { (name) } }
                                }
                            }
                        }
                        div.whoami {
                            span {
                                (who.name)
                                @if who.role == Role::Reader { " (may look only)" }
                            }
                            @if who.name != "local" && !who.csrf.is_empty() {
                                form method="post" action="/logout" { (csrf(who)) button.quiet { "Log out" } }
                            }
                        }
                    }
                }
                main #content tabindex="-1" {
                    h1 { (sheet.title) }
                    @if !sheet.what.is_empty() { p.what { (sheet.what) } }
                    @if let Some(flash) = who.and_then(|who| who.flash.as_deref()) {
                        p.flash role="status" { "✓ " (flash) }
                    }
                    (sheet.content)
                    footer { "All times are UTC. This page was made at " (instant(wall())) "." }
                }
            }
        }
    }
}

/// A page for the person who asks.
pub(super) fn page(ask: &Ask, title: &str, nav: &str, what: &str, content: Markup) -> crate::edge::Response {
    let sheet = Sheet { title, nav, what, again: None, content };
    super::answer::html(200, document(Some(&ask.who), sheet))
}

/// An error's words as a sentence.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

/// A failure, told to a person.
pub(super) fn failure(failure: &Failure, who: Option<&Who>) -> Markup {
    let content = html! {
        p.answer { (sentence(&failure.detail)) }
        @if let Some(hint) = &failure.hint { p { strong { "Try: " } (hint) } }
        p { a href="/" { "Back to Today" } }
    };
    document(who, Sheet { title: failure.title(), nav: "", what: "", again: None, content })
}

/// The field that proves that a form is of this session.
pub(super) fn csrf(who: &Who) -> Markup {
    html! { input type="hidden" name="csrf" value=(who.csrf); }
}

/// A state with its sign, so that it is told without colour.
pub(super) fn state(word: &str) -> Markup {
    let (class, sign) = match word {
        "DONE" | "SENT" | "COMPLETED" | "RESOLVED" | "ok" => ("done", "✓"),
        "RECEIVED" | "CLAIMED" | "WAITING" | "RUNNING" | "DEFERRED" | "FIXING" | "ASSIGNED" | "quiet" | "late" => {
            ("wait", "…")
        }
        "PARKED" | "CONFLICT" | "DEAD" | "INVALID" | "FAILED" | "OPEN" | "fail" | "refused" => ("need", "!"),
        "DUPLICATE" => ("plain", "="),
        _ => ("plain", "–"),
    };
    html! { span class={ "state " (class) } { span.sign aria-hidden="true" { (sign) } (word.to_lowercase()) } }
}

/// The state of an object that a provider follows, as a word with a sign: whoever has it open knows what it means.
pub(super) fn status(word: &str) -> Markup {
    let (class, sign) = match word {
        "active" | "won" | "paid" => ("done", "✓"),
        "trialing" | "past_due" | "unpaid" | "pending" | "incomplete" | "paused" | "canceling" | "open" => {
            ("wait", "…")
        }
        _ => ("plain", "–"),
    };
    html! { span class={ "state " (class) } { span.sign aria-hidden="true" { (sign) } (word) } }
}

/// An amount with the decimals of its currency, its thousands set apart.
pub(super) fn money_text(minor: i64, code: &str) -> String {
    let Some(currency) = Currency::parse(code) else { return format!("{minor} minor units of {code}") };
    let text = Money { minor, currency }.to_string();
    let (number, code) = text.split_once(' ').unwrap_or((&text, ""));
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |rest| ("−", rest));
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let point = if part.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{part} {code}")
}

/// A number, its thousands set apart.
pub(super) fn number(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut grouped = if n < 0 { "−".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count that stops at the most that is counted.
pub(super) fn count(n: i64) -> String {
    let most = crate::store::overview::COUNT_MOST;
    if n >= most { format!("more than {}", number(most - 1)) } else { number(n) }
}

/// An instant: the day and the second, the whole of it in its title.
pub(super) fn instant(at: Millis) -> Markup {
    let whole = rfc3339(at);
    let short = whole.get(..19).map_or(whole.clone(), |text| text.replace('T', " "));
    html! { time datetime=(whole) title={ (whole) " UTC, " (ago(at)) } { (short) } }
}

/// The same from its RFC 3339 text.
pub(super) fn instant_of(text: &str) -> Markup {
    match text.parse::<jiff::Timestamp>() {
        Ok(at) => instant(at.as_millisecond()),
        Err(_) => html! { (text) },
    }
}

/// How long ago, with the instant in the title.
pub(super) fn since(at: Millis) -> Markup {
    let whole = rfc3339(at);
    html! { time datetime=(whole) title={ (whole) " UTC" } { (ago(at)) } }
}

/// `2 minutes ago`, `in 3 hours`.
pub(super) fn ago(at: Millis) -> String {
    let span = wall() - at;
    if span.abs() < 1_000 {
        "just now".into()
    } else if span > 0 {
        format!("{} ago", duration(span))
    } else {
        format!("in {}", duration(-span))
    }
}

/// A length of time in one unit: `850 ms`, `12 seconds`, `3 hours`.
pub(super) fn duration(span: Millis) -> String {
    let units = [("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)];
    for (name, length) in units {
        if span >= length {
            let n = span / length;
            return format!("{n} {name}{}", if n == 1 { "" } else { "s" });
        }
    }
    format!("{span} ms")
}

/// An id or reference: whole, selected by one click.
pub(super) fn code(text: &str) -> Markup {
    html! { code.id { (text) } }
}

/// A table; columns whose name begins with `#` hold numbers. On a phone each row becomes a small list of its own, which
/// is why the roles are spelled out: browsers forget them with the layout.
pub(super) fn table(caption: &str, columns: &[&str], rows: Vec<Vec<Markup>>) -> Markup {
    let number = |at: usize| columns[at].starts_with('#').then_some("n");
    let name = |at: usize| columns[at].trim_start_matches('#');
    html! {
        div.scroll.cards {
            table role="table" {
                caption { (caption) }
                thead role="rowgroup" {
                    tr role="row" {
                        @for at in 0..columns.len() { th scope="col" role="columnheader" class=[number(at)] { (name(at)) } }
                    }
                }
                tbody role="rowgroup" {
                    @for row in rows {
                        tr role="row" {
                            @for (at, cell) in row.into_iter().enumerate() {
                                @if at == 0 { th scope="row" role="rowheader" data-name=(name(at)) class=[number(at)] { (cell) } }
                                @else { td role="cell" data-name=(name(at)) class=[number(at)] { div { (cell) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What stands where a list is empty.
pub(super) fn empty(headline: &str, next: Markup) -> Markup {
    html! { div.empty { p.answer { (headline) } (next) } }
}

/// The link to the next page, and how far back was looked.
pub(super) fn pager<T>(ask: &Ask, page: &Page<T>) -> Markup {
    pager_to(ask, page.next.map(cursor), page.looked_back_to)
}

/// The same for a cursor that is made already.
pub(super) fn pager_to(ask: &Ask, next: Option<String>, looked_back_to: Option<Millis>) -> Markup {
    html! {
        @if next.is_some() || !ask.typed("cursor").is_empty() {
            nav.pager aria-label="More of this list" {
                @if !ask.typed("cursor").is_empty() { a href=(without_cursor(ask)) { "To the beginning" } }
                @if let Some(at) = looked_back_to {
                    span { "Looked back to " (instant(at)) "." }
                }
                @if let Some(next) = &next {
                    a rel="next" href=(ask.link("cursor", next)) {
                        @if looked_back_to.is_some() { "Look further back" } @else { "More" }
                    }
                }
            }
        }
    }
}

fn without_cursor(ask: &Ask) -> String {
    let link = ask.link("cursor", "");
    link.trim_end_matches("cursor=").trim_end_matches(['&', '?']).to_owned() + if link == "?cursor=" { "?" } else { "" }
}

/// A field of a filter: a label and a text input.
pub(super) fn text_field(ask: &Ask, name: &str, label: &str, example: &str) -> Markup {
    html! {
        label { span { (label) } input type="text" name=(name) value=(ask.typed(name)) placeholder=(example) autocomplete="off" spellcheck="false"; }
    }
}

/// A field for a day.
pub(super) fn day_field(ask: &Ask, name: &str, label: &str) -> Markup {
    let typed = ask.typed(name);
    // A whole instant, from the URL, stays one.
    let kind = if typed.is_empty() || typed.len() == 10 { "date" } else { "text" };
    html! { label { span { (label) } input type=(kind) name=(name) value=(typed); } }
}

/// A field with given choices; the first, with an empty value, means any.
pub(super) fn choice_field(ask: &Ask, name: &str, label: &str, any: &str, choices: &[(String, String)]) -> Markup {
    html! {
        label {
            span { (label) }
            select name=(name) {
                option value="" { (any) }
                @for (value, text) in choices {
                    option value=(value) selected[ask.typed(name) == value] { (text) }
                }
            }
        }
    }
}

/// A link with a filter in its query.
pub(super) fn href(path: &str, pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    pairs.iter().for_each(|(name, value)| {
        query.append_pair(name, value);
    });
    format!("{path}?{}", query.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_has_the_decimals_of_its_currency_and_its_thousands_apart() {
        assert_eq!(money_text(12_840_050, "EUR"), "128,400.50 EUR");
        assert_eq!(money_text(-5, "USD"), "−0.05 USD");
        assert_eq!(money_text(1_000_000, "JPY"), "1,000,000 JPY");
        assert_eq!(money_text(8000, "KWD"), "8.000 KWD");
        assert_eq!(money_text(7, "???"), "7 minor units of ???");
    }

    #[test]
    fn times_are_told_in_their_largest_unit() {
        for (span, told) in [(850, "850 ms"), (1_000, "1 second"), (120_000, "2 minutes"), (90_000_000, "1 day")] {
            assert_eq!(duration(span), told);
        }
    }

    #[test]
    fn what_a_payload_says_never_becomes_markup() {
        let evil = "<script>alert(1)</script>\"'";
        let told = html! { (code(evil)) (state(evil)) a title=(evil) { (evil) } }.into_string();
        assert!(!told.contains("<script") && !told.contains("\"'"), "{told}");
    }
}
