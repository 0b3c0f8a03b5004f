//! Looks up many claims of one kind in their own order: one cursor that steps while the next is near and seeks when it
//! is not, so that a million look-ups read the table once and a thousand read little of it.

use crate::error::Result;
use rusqlite::{Connection, Row, params};

/// Rows that are stepped over before seeking is cheaper.
const NEAR: u32 = 12;

/// Which claims are found by a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The one with this reference.
    Reference,
    /// All whose reference begins with it.
    Beginning,
}

/// Columns: ref, alias_of, journal, state, amount, currency. `wanted` is sorted; `each` gets the place in it and the row.
pub fn claims(
    conn: &Connection,
    (book, kind): (i64, &str),
    by: By,
    wanted: &[&str],
    each: &mut dyn FnMut(usize, &Row) -> Result<()>,
) -> Result<()> {
    let fits = |wanted: &str, name: &str| match by {
        By::Reference => wanted == name,
        By::Beginning => name.starts_with(wanted),
    };
    let mut statement = conn.prepare_cached(
        "SELECT ref, alias_of, journal, state, amount, currency FROM postonce_claims
         WHERE book = ?1 AND kind = ?2 AND ref >= ?3 ORDER BY ref",
    )?;
    let mut at = 0;
    while let Some(from) = wanted.get(at) {
        let mut rows = statement.query(params![book, kind, from])?;
        let mut passed = 0;
        while passed < NEAR {
            let Some(row) = rows.next()? else { return Ok(()) };
            let name = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
            while at < wanted.len() && wanted[at] < name && !fits(wanted[at], name) {
                at += 1;
            }
            let mut met = false;
            let near = wanted[at..].iter().take_while(|w| **w <= name).enumerate();
            for (further, _) in near.filter(|(_, w)| fits(w, name)) {
                each(at + further, row)?;
                met = true;
            }
            if at == wanted.len() {
                return Ok(());
            }
            passed = if met { 0 } else { passed + 1 };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(refs: &[String]) -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../../schema.sql")).unwrap();
        for name in refs {
            let sql = "INSERT INTO postonce_claims(book, kind, ref, raw_event, state) VALUES (1, 'k', ?1, 1, 'CLAIMED')
                       ON CONFLICT DO NOTHING";
            conn.execute(sql, [name]).unwrap();
        }
        conn
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn every_claim_that_is_asked_for_is_found_once_and_no_other(
            refs in proptest::collection::vec("[ab@]{1,6}", 0..80),
            mut wanted in proptest::collection::vec("[ab@]{1,6}", 0..40),
        ) {
            let conn = table(&refs);
            wanted.sort();
            let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
            let distinct: std::collections::BTreeSet<&String> = refs.iter().collect();
            for by in [By::Reference, By::Beginning] {
                let mut got = Vec::new();
                claims(&conn, (1, "k"), by, &wanted, &mut |at, row| {
                    got.push((at, row.get::<_, String>(0)?));
                    Ok(())
                }).unwrap();
                let mut all = Vec::new();
                for (at, w) in wanted.iter().enumerate() {
                    let fits = |r: &&&String| if by == By::Reference { r.as_str() == *w } else { r.starts_with(w) };
                    all.extend(distinct.iter().filter(fits).map(|r| (at, r.to_string())));
                }
                got.sort();
                all.sort();
                prop_assert_eq!(got, all);
            }
        }
    }
}
