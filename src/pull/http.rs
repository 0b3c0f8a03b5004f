//! One call to a provider's API: the proof of who asks, the tries, the waiting, and what an answer means.

use super::{Access, Pace, PullError, fill};
use crate::providers::pull::{ApiSpec, Auth};
use crate::providers::report::cells::{Names, Test};
use base64::Engine;
use serde_json::Value;
use std::io::Read;
use std::time::{Duration, Instant};

/// An answer larger than this is not a page.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A call without its proof.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub method: String,
    pub url: String,
    pub body: Option<Body>,
    /// Also gives the key (only ever false for a download from signed storage).
    pub with_key: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Json(Value),
    Form(String),
}

impl Call {
    pub(super) fn get(url: String) -> Call {
        Call { method: "GET".into(), url, body: None, with_key: true }
    }
}

/// An answer with status 2xx.
#[derive(Debug)]
pub(super) struct Answer {
    pub json: Value,
    pub link: Option<String>,
}

type Response = ureq::http::Response<ureq::Body>;

/// The way to one provider's API.
pub(super) struct Http {
    agent: ureq::Agent,
    auth: Auth,
    headers: Vec<(String, String)>,
    throttled: Test,
    failed: Test,
    not_ready: Test,
    message: Vec<String>,
    pub declared: String,
    pub base: String,
    access: Access,
    pace: Pace,
    token: Option<(String, Instant)>,
    pub tries: u64,
}

/// What to do after a try.
enum Verdict<T> {
    Done(T),
    Again(PullError, Option<Duration>),
    Renew(PullError),
    Stop(PullError),
}

impl Http {
    pub(super) fn new(api: &ApiSpec, access: Access, pace: Pace, vars: &fill::Vars) -> Result<Http, PullError> {
        let test = |condition| Test::bind(condition, &Names::Pointers).map_err(PullError::Recipe);
        let declared = match &api.base_test {
            Some(base) if access.test_mode => base,
            _ => &api.base,
        };
        let declared = vars.fill(declared)?;
        let base = access.base.clone().unwrap_or_else(|| declared.clone());
        let host = fill::origin(&base).ok_or_else(|| PullError::Recipe(format!("{base:?} is no URL")))?;
        let loopback = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
        let inner = |l: &&str| host.strip_prefix(*l).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
        if !host.starts_with("https://") && !loopback.iter().any(inner) {
            return Err(PullError::Recipe(format!(
                "{base}: a key is only given to https addresses or to this machine"
            )));
        }
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(pace.call_timeout))
            .user_agent(concat!("postonce/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Http {
            agent: config.into(),
            auth: api.auth.clone(),
            headers: api.headers.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            throttled: test(&api.throttled)?,
            failed: test(&api.failed)?,
            not_ready: test(&api.not_ready)?,
            message: api.message.iter().flat_map(|m| m.all().to_vec()).collect(),
            declared,
            base,
            access,
            pace,
            token: None,
            tries: 0,
        })
    }

    /// Waits; false: the program stops.
    pub(super) fn wait(&self, time: Duration) -> Result<(), PullError> {
        if (self.pace.wait)(time) { Ok(()) } else { Err(PullError::Stopped) }
    }

    /// A call whose answer is JSON, tried until it works or the pace's tries are used up.
    pub(super) fn json(&mut self, call: &Call) -> Result<Answer, PullError> {
        self.again(call, |http, response| http.judge_json(response))
    }

    /// A download into `out`. It is not tried again once the first byte was written.
    pub(super) fn download(&mut self, call: &Call, out: &mut dyn std::io::Write) -> Result<u64, PullError> {
        let mut response = self.again(call, |http, response| match response.status().as_u16() {
            200..=299 => Verdict::Done(response),
            _ => match http.judge_json(response) {
                Verdict::Done(_) => Verdict::Stop(PullError::Refused { status: 0, message: String::new() }),
                Verdict::Again(e, time) => Verdict::Again(e, time),
                Verdict::Renew(e) => Verdict::Renew(e),
                Verdict::Stop(e) => Verdict::Stop(e),
            },
        })?;
        let mut reader = response.body_mut().as_reader();
        std::io::copy(&mut reader, out).map_err(|e| PullError::Network(format!("the download broke off: {e}")))
    }

    fn again<T>(&mut self, call: &Call, judge: impl Fn(&Http, Response) -> Verdict<T>) -> Result<T, PullError> {
        let mut renewed = false;
        let mut tries = 0;
        loop {
            let proof = if call.with_key { self.proof()? } else { None };
            self.tries += 1;
            let verdict = match self.send(call, proof) {
                Ok(response) => judge(self, response),
                Err(error) => Verdict::Again(PullError::Network(error), None),
            };
            match verdict {
                Verdict::Done(done) => return Ok(done),
                Verdict::Stop(error) => return Err(error),
                Verdict::Renew(error) => {
                    if renewed || self.token.take().is_none() {
                        return Err(error);
                    }
                    renewed = true;
                }
                Verdict::Again(error, told) => {
                    tries += 1;
                    if tries >= self.pace.tries || told.is_some_and(|t| t > self.pace.wait_max) {
                        return Err(error);
                    }
                    // what the provider asks for, or a random time below a bound that doubles
                    let bound = self.pace.wait_first.saturating_mul(1 << (tries - 1).min(16)).min(self.pace.wait_max);
                    let time = told.unwrap_or_else(|| bound.mul_f64(rand::random_range(0.5..=1.0)));
                    log::info!("{}: {error}; again in {time:?}", call.url.split('?').next().unwrap_or_default());
                    self.wait(time)?;
                }
            }
        }
    }

    fn send(&self, call: &Call, proof: Option<(String, String)>) -> Result<Response, String> {
        let mut request = ureq::http::Request::builder().method(call.method.as_str()).uri(&call.url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some((name, value)) = proof {
            request = request.header(name, value);
        }
        let sent = match &call.body {
            None => self.agent.run(request.body(()).map_err(|e| e.to_string())?),
            Some(body) => {
                let (kind, text) = match body {
                    Body::Json(value) => ("application/json", value.to_string()),
                    Body::Form(text) => ("application/x-www-form-urlencoded", text.clone()),
                };
                self.agent.run(request.header("content-type", kind).body(text).map_err(|e| e.to_string())?)
            }
        };
        sent.map_err(|e| e.to_string())
    }

    /// The header that proves who asks, with a fresh token where one is needed.
    fn proof(&mut self) -> Result<Option<(String, String)>, PullError> {
        let basic = |access: &Access| {
            let pair = format!("{}:{}", access.user.as_deref().unwrap_or_default(), access.key);
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
        };
        let (token_path, scope) = match &self.auth {
            Auth::Bearer => return Ok(Some(("authorization".into(), format!("Bearer {}", self.access.key)))),
            Auth::Basic => return Ok(Some(("authorization".into(), basic(&self.access)))),
            Auth::Header(name) => return Ok(Some((name.clone(), self.access.key.clone()))),
            Auth::ClientCredentials { token, scope } => (token.clone(), scope.clone()),
        };
        if let Some((token, until)) = &self.token
            && Instant::now() < *until
        {
            return Ok(Some(("authorization".into(), format!("Bearer {token}"))));
        }
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if let Some(scope) = &scope {
            form.append_pair("scope", scope);
        }
        let call = Call {
            method: "POST".into(),
            url: format!("{}{token_path}", self.base.trim_end_matches('/')),
            body: Some(Body::Form(form.finish())),
            with_key: true,
        };
        let proof = ("authorization".to_owned(), basic(&self.access));
        let mut tries = 0;
        let answer = loop {
            tries += 1;
            self.tries += 1;
            let verdict = match self.send(&call, Some(proof.clone())) {
                Ok(response) => self.judge_json(response),
                Err(error) => Verdict::Again(PullError::Network(error), None),
            };
            match verdict {
                Verdict::Done(answer) => break answer,
                Verdict::Again(error, _) if tries >= self.pace.tries => return Err(error),
                Verdict::Again(_, told) => self.wait(told.unwrap_or(self.pace.wait_first).min(self.pace.wait_max))?,
                Verdict::Renew(error) | Verdict::Stop(error) => return Err(error),
            }
        };
        let token = answer.json.get("access_token").and_then(Value::as_str);
        let token = token.ok_or_else(|| PullError::Answer("the token's answer holds no access_token".into()))?;
        // renewed a minute early; a server that says nothing is asked again after ten
        let lives = answer.json.get("expires_in").and_then(Value::as_u64).unwrap_or(600);
        let until = Instant::now() + Duration::from_secs(lives.saturating_sub(60).min(86_400));
        self.token = Some((token.to_owned(), until));
        Ok(Some(("authorization".into(), format!("Bearer {token}"))))
    }

    fn judge_json(&self, mut response: Response) -> Verdict<Answer> {
        let status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let told = header("retry-after").or_else(|| header("ratelimit-reset")).and_then(|text| delay(&text));
        let link = header("link");
        let mut body = Vec::new();
        let read = response.body_mut().as_reader().take(ANSWER_BYTES_MAX + 1).read_to_end(&mut body);
        if let Err(e) = read {
            return Verdict::Again(PullError::Network(format!("the answer broke off: {e}")), None);
        }
        if body.len() as u64 > ANSWER_BYTES_MAX {
            return Verdict::Stop(PullError::Answer(format!("the answer has more than {ANSWER_BYTES_MAX} bytes")));
        }
        let json = serde_json::from_slice::<Value>(&body);
        let message = self.message(json.as_ref().ok(), &body);
        if status == 429 || json.as_ref().is_ok_and(|j| self.throttled.holds_for(j)) {
            return Verdict::Again(PullError::Throttled { message }, told);
        }
        if json.as_ref().is_ok_and(|j| self.not_ready.holds_for(j)) {
            return Verdict::Stop(PullError::NotReady(message));
        }
        match (status, json) {
            (200..=299, Ok(json)) if self.failed.holds_for(&json) => {
                Verdict::Stop(PullError::Refused { status, message })
            }
            (200..=299, Ok(json)) => Verdict::Done(Answer { json, link }),
            (200..=299, Err(e)) => Verdict::Again(PullError::Answer(format!("the answer is not JSON: {e}")), None),
            (401, _) => Verdict::Renew(PullError::Refused { status, message }),
            (404 | 410, _) => Verdict::Stop(PullError::NotThere { message }),
            (408 | 425 | 500..=599, _) => Verdict::Again(PullError::Broken { status, message }, told),
            _ => Verdict::Stop(PullError::Refused { status, message }),
        }
    }

    fn message(&self, json: Option<&Value>, body: &[u8]) -> String {
        let found = self.message.iter().find_map(|at| json?.pointer(at));
        let text = match found {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned(),
        };
        text.chars().filter(|c| !c.is_control()).take(300).collect()
    }
}

/// Seconds, also with a fraction, or a date; never negative.
fn delay(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Some(seconds) = text.split('.').next().and_then(|whole| whole.parse::<u64>().ok()) {
        let more = u64::from(text.split_once('.').is_some_and(|(_, f)| f.bytes().any(|b| b != b'0')));
        return Some(Duration::from_secs(seconds.saturating_add(more)));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    let seconds = at.as_second() - jiff::Timestamp::now().as_second();
    Some(Duration::from_secs(seconds.max(0) as u64))
}
