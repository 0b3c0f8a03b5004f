//! What a provider's file says about its API: where it is, who may ask, which lists there are and how they are paged,
//! how a report is ordered, and how one object or event is fetched again.
//!
//! Data only; `crate::pull` does the asking. Texts may hold placeholders in braces: `{from}` `{to}` (RFC 3339, UTC),
//! `{last}` (the last second of the window), each also as `.ms` (with milliseconds) and `.unix`; `{day.year}`
//! `{day.month}` `{day.day}` for windows by day; `{parent}` under `for_each`; any other name is a setting of the source.

use super::report::{Condition, OneOrMany, RowSpec};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The provider's API, `[api]`.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ApiSpec {
    /// Scheme and host. A source may name another (`api_base`), which then gets all calls.
    pub base: String,
    /// The same for test mode, where it is another host.
    #[serde(default)]
    pub base_test: Option<String>,
    /// How a call proves who asks.
    pub auth: Auth,
    /// Headers of every call.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Answers with status 200 that mean "too many requests" (GraphQL).
    #[serde(default)]
    pub throttled: Condition,
    /// Answers with status 200 that mean failure.
    #[serde(default)]
    pub failed: Condition,
    /// Answers that mean "not ready yet": the run is deferred.
    #[serde(default)]
    pub not_ready: Condition,
    /// Where an error's message stands, for people.
    #[serde(default)]
    pub message: Option<OneOrMany>,
    /// Placeholders that the source need not set.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// How a call proves who asks. The secret itself comes from the source's configuration.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// `Authorization: Bearer <key>`
    Bearer,
    /// `Authorization: Basic <user:key>`
    Basic,
    /// The key in a header of that name.
    Header(String),
    /// A token by OAuth 2 client credentials (user is the client's id, key its secret).
    ClientCredentials {
        /// Path of the token endpoint.
        token: String,
        /// The scope to ask for.
        #[serde(default)]
        scope: Option<String>,
    },
}

impl Auth {
    /// Does the proof have a user (a key id, a client id) beside the key?
    pub fn has_two_parts(&self) -> bool {
        matches!(self, Auth::Basic | Auth::ClientCredentials { .. })
    }
}

/// One list, or one report made on demand: `[pull.<name>]`.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct PullSpec {
    /// What the items are.
    #[serde(default)]
    pub gives: Gives,
    /// `GET` or `POST`.
    #[serde(default = "get")]
    pub method: String,
    /// Path below the base.
    #[serde(default)]
    pub path: String,
    /// The query of the first page.
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    /// A JSON body, with placeholders in its texts.
    #[serde(default)]
    pub body: Option<String>,
    /// Runs once for each item of another list of this file.
    #[serde(default)]
    pub for_each: Option<ForEach>,
    /// Which time the list can be asked for.
    #[serde(default)]
    pub window: Window,
    /// Newest first and no window: what is older than the window ends the pull, what is younger is passed over.
    #[serde(default)]
    pub stop_when_older: Option<String>,
    /// How many items a page holds.
    #[serde(default)]
    pub page_size: Option<PageSize>,
    /// How the next page is found.
    #[serde(default)]
    pub pages: Pages,
    /// More pages than this are an error, not a long list.
    #[serde(default = "pages_max")]
    pub pages_max: u32,
    /// Where the items stand.
    #[serde(default)]
    pub items: String,
    /// Where in an item the object stands that the rules speak of.
    #[serde(default)]
    pub item_root: String,
    /// A time in the answer that must have passed the window's end, or the day is not complete yet.
    #[serde(default)]
    pub ready: Option<String>,
    /// The kinds that this list can contain; `*` for all. Only those of ours are expected in it.
    #[serde(default)]
    pub covers: Vec<String>,
    /// Hours after which an entry that is in no list goes to a person.
    #[serde(default)]
    pub grace_h: u32,
    /// The window asks for another clock than the one by which money moved: so many hours further back are asked too.
    #[serde(default)]
    pub look_back_h: u32,
    /// The webhook's body around an event, where the list holds less: JSON in which the text `{}` is the item.
    #[serde(default)]
    pub wrap: Option<String>,
    /// How an item is read, where the items are rows.
    #[serde(default)]
    pub row: Option<RowSpec>,
    /// The steps of a report that is made on demand.
    #[serde(default)]
    pub steps: Option<Steps>,
}

fn get() -> String {
    "GET".into()
}

fn pages_max() -> u32 {
    10_000
}

/// What a list's items are.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum Gives {
    /// Rows for settlement.
    #[default]
    Rows,
    /// Events as the webhook sends them (each item is a body).
    Events,
    /// Objects whose ids other lists need.
    Objects,
    /// A report file.
    Report,
}

/// A list that runs once for each item of another.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ForEach {
    /// The other list's name.
    pub pull: String,
    /// Where the item's id stands; it becomes `{parent}`.
    pub id: String,
}

/// How a list is limited in time.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// By the placeholders in query or body, or not at all.
    #[default]
    Query,
    /// One run of pages for each calendar day of this zone that the window touches.
    Days(String),
    /// Not more than so many days in one run of pages; a longer window is asked in parts.
    MostDays(u32),
}

/// The parameter that says how many items a page holds.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct PageSize {
    /// Its name.
    pub param: String,
    /// Its value.
    pub size: u32,
}

/// How the next page is found.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// There is one page.
    #[default]
    One,
    /// The last item's id goes into a parameter.
    LastItem {
        /// The parameter.
        param: String,
        /// Where the id stands in an item.
        id: String,
        /// Where the answer says whether there is more.
        more: String,
    },
    /// The answer holds the next page's URL.
    NextUrl {
        /// Where.
        at: String,
        /// Where it says whether there is more, if the URL stands there also at the end.
        #[serde(default)]
        more: Option<String>,
        /// There stands a list of links with `rel` and `href`; the one with `next` is meant.
        #[serde(default)]
        among_links: bool,
    },
    /// The `Link` header holds it, `rel="next"`.
    LinkHeader,
    /// A token from the answer goes into a parameter; none or an empty one ends the list.
    Cursor {
        /// The parameter.
        param: String,
        /// Where the token stands.
        at: String,
    },
    /// Pages are numbered from 1.
    Number {
        /// The parameter.
        param: String,
        /// Where the number of pages stands.
        total: String,
    },
    /// The number of items passed goes into a parameter; a page that is not full is the last.
    Offset {
        /// The parameter.
        param: String,
    },
    /// A token from the answer goes into the JSON body.
    BodyCursor {
        /// Where the token stands.
        at: String,
        /// Where the answer says whether there is more; without it the list ends where there is no token.
        #[serde(default)]
        more: Option<String>,
        /// Where it goes in the body.
        set: String,
    },
}

/// A report made on demand: ordered, waited for, downloaded.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// Which `[report.…]` the file then is.
    pub report: String,
    /// Path that orders it.
    pub create: String,
    /// Form fields of the order.
    #[serde(default)]
    pub form: BTreeMap<String, String>,
    /// Or its JSON body.
    #[serde(default)]
    pub body: Option<String>,
    /// Where the order's id stands in the answer; it becomes `{id}`.
    pub id: String,
    /// Path that tells its state.
    pub poll: String,
    /// Where the state stands.
    pub state: String,
    /// States that mean it is ready.
    pub done: OneOrMany,
    /// States that mean it will never be.
    pub failed: OneOrMany,
    /// Seconds between two looks.
    pub every_s: u64,
    /// Seconds after which the run is deferred.
    pub most_s: u64,
    /// A path to ask for the download's URL, where the state's answer does not hold it.
    #[serde(default)]
    pub link: Option<String>,
    /// Where the URL stands.
    pub url: String,
    /// The download needs the same proof as the calls (only given where the URL is on the API's own hosts).
    #[serde(default)]
    pub url_auth: bool,
    /// Hosts besides the API's that the download may be on, `*.` for any below.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// How an object is fetched by what a report line or a movement says: `[[fetch_object]]`.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct FetchObject {
    /// The kinds it is for.
    pub kinds: Vec<String>,
    /// Beginnings of references it is for; none: all.
    #[serde(default)]
    pub prefix: Vec<String>,
    /// `GET` path with `{id}` (the reference without the beginning that fitted, if that ends in `/`) or `{parent}`.
    pub path: String,
    /// Where the object stands in the answer; empty: the answer is it.
    #[serde(default)]
    pub at: String,
    /// The body to build from the object, as the webhook would have sent it: JSON in which the text `{}` stands for the
    /// whole object, `{/pointer}` for a value of it, `{id}` for the reference.
    pub body: String,
    /// The path gives the event itself, as the provider kept it: nothing is rebuilt.
    #[serde(default)]
    pub kept: bool,
    /// The rebuilt body may only be used when this holds for the object (it has succeeded).
    #[serde(default)]
    pub only: Condition,
}

/// How an event is fetched by its id: `[fetch_event]`.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct FetchEvent {
    /// `GET` path with `{id}`.
    pub path: String,
    /// Where the event stands in the answer; empty: the answer is it.
    #[serde(default)]
    pub at: String,
    /// Days that the provider keeps events.
    #[serde(default)]
    pub kept_days: Option<u32>,
}
