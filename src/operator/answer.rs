//! What goes back: pages and JSON with the headers that every answer carries, and failures told to people or machines.

use super::access::Who;
use crate::edge::Response;
use crate::error::Error;
use serde::Serialize;

/// Why there is no answer, in terms of HTTP (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub status: u16,
    /// The last part of the problem's type.
    pub code: &'static str,
    pub detail: String,
    /// What to try.
    pub hint: Option<String>,
    pub retry_after: Option<u64>,
    pub allow: Option<String>,
}

impl Failure {
    pub(super) fn new(status: u16, code: &'static str, detail: impl Into<String>) -> Failure {
        Failure { status, code, detail: detail.into(), hint: None, retry_after: None, allow: None }
    }

    /// There is no such thing.
    pub(super) fn absent(what: impl std::fmt::Display) -> Failure {
        Failure::new(404, "not_found", format!("there is no {what}"))
    }

    /// What was asked cannot be read.
    pub(super) fn malformed(detail: impl Into<String>) -> Failure {
        Failure::new(400, "malformed", detail)
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn retry_after(mut self, seconds: u64) -> Failure {
        self.retry_after = Some(seconds);
        self
    }

    /// The heading of it.
    pub(super) fn title(&self) -> &'static str {
        match self.status {
            400 => "This could not be understood",
            401 => "Who are you?",
            403 => "Not allowed",
            404 => "Not here",
            405 => "Not this way",
            409 => "Not possible now",
            413 => "Too large",
            415 => "Unknown kind of content",
            421 => "Wrong name",
            429 => "Too many tries",
            503 => "Not available",
            _ => "It went wrong",
        }
    }

    /// As a problem document.
    pub(super) fn problem(&self) -> Response {
        let mut document = serde_json::json!({
            "type": format!("urn:postonce:problem:{}", self.code),
            "title": self.title(),
            "status": self.status,
            "detail": self.detail,
        });
        if let (Some(hint), Some(object)) = (&self.hint, document.as_object_mut()) {
            object.insert("try".into(), hint.as_str().into());
        }
        let response = Response::new(self.status)
            .with_header("Content-Type", "application/problem+json")
            .with_body(document.to_string().into_bytes());
        self.with_headers(response)
    }

    /// The headers that belong to it.
    pub(super) fn with_headers(&self, mut response: Response) -> Response {
        if let Some(seconds) = self.retry_after {
            response = response.with_header("Retry-After", seconds.to_string());
        }
        if let Some(allow) = &self.allow {
            response = response.with_header("Allow", allow.clone());
        }
        if self.status == 401 {
            response = response.with_header("WWW-Authenticate", "Bearer realm=\"postonce\"");
        }
        response
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let hint = error.hint().map(str::to_owned);
        let (status, code) = match &error {
            Error::Refused { .. }
            | Error::LostClaim
            | Error::Apply(_)
            | Error::Reject(_)
            | Error::Parked { .. }
            | Error::Conflict(_) => (409, "refused"),
            Error::Pool(_)
            | Error::QueueFull
            | Error::Unavailable(_)
            | Error::OverBudget(_)
            | Error::LostTransaction(_)
            | Error::Again => (503, "unavailable"),
            Error::Sqlite(_) if error.is_busy() || error.is_disk_full() => (503, "unavailable"),
            Error::Sqlite(_) => (500, "storage"),
        };
        if status == 500 {
            log::error!("operator: {error}");
        }
        let failure = Failure::new(status, code, error.to_string());
        let failure = if status == 503 { failure.retry_after(5) } else { failure };
        Failure { hint, ..failure }
    }
}

/// The outcome of a handler.
pub(super) type Outcome = Result<Response, Failure>;

/// A page.
pub(super) fn html(status: u16, markup: maud::Markup) -> Response {
    Response::new(status)
        .with_header("Content-Type", "text/html; charset=utf-8")
        .with_body(markup.into_string().into_bytes())
}

/// JSON.
pub(super) fn json(value: &impl Serialize) -> Outcome {
    let text = serde_json::to_vec(value).map_err(|e| Failure::new(500, "storage", e.to_string()))?;
    Ok(Response::json(200, text))
}

/// To another page, after a change.
pub(super) fn see(place: &str) -> Response {
    Response::new(303).with_header("Location", place.to_owned())
}

/// What every answer of this listener carries.
pub(super) fn sealed(response: Response, who: Option<&Who>) -> Response {
    let mut response = response
        .with_header("X-Content-Type-Options", "nosniff")
        // Not "no-referrer": with it browsers send no origin with our own forms.
        .with_header("Referrer-Policy", "same-origin")
        .with_header("Cross-Origin-Resource-Policy", "same-origin")
        .with_header("X-Frame-Options", "DENY")
        .with_header(
            "Content-Security-Policy",
            "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        );
    if response.header("Cache-Control").is_none() {
        response = response.with_header("Cache-Control", "no-store");
    }
    match who.and_then(|who| who.new_cookie.clone()) {
        Some(cookie) => response.with_header("Set-Cookie", cookie),
        None => response,
    }
}
