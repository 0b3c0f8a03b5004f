//! The chart the product is for: discrepancies a day over ninety days, by class, gaps hatched, what is open as a line.
//!
//! Drawn without colours of its own: each part gets a class of the style sheet, so that it follows the reader's scheme and
//! needs no inline style.

use crate::store::settlement_view::Day;
use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;

/// The classes in the order of their colours; what is none of these is "other".
const CLASSES: [(&str, &str); 5] = [
    ("MISSING_OURS", "missing here"),
    ("MISSING_THEIRS", "missing in their report"),
    ("AMOUNT_DIFFERS", "amount, currency or fee differs"),
    ("PARKED_OURS", "parked or in conflict here"),
    ("OTHER", "other"),
];

fn series(class: &str) -> usize {
    match class {
        "MISSING_OURS" => 0,
        "MISSING_THEIRS" => 1,
        "AMOUNT_DIFFERS" | "CURRENCY_DIFFERS" | "FEE_DIFFERS" => 2,
        "PARKED_OURS" => 3,
        _ => 4,
    }
}

const SIZE: (u32, u32) = (1040, 280);
const LEFT: i32 = 44;
const BOTTOM: i32 = 30;
const TOP: i32 = 14;

/// Colours that stand for classes of the style sheet until the picture is drawn.
const MARKS: [(RGBColor, &str); 9] = [
    (RGBColor(1, 0, 1), "c-s1"),
    (RGBColor(2, 0, 2), "c-s2"),
    (RGBColor(3, 0, 3), "c-s3"),
    (RGBColor(4, 0, 4), "c-s4"),
    (RGBColor(5, 0, 5), "c-s5"),
    (RGBColor(6, 0, 6), "c-axis"),
    (RGBColor(7, 0, 7), "c-grid"),
    (RGBColor(8, 0, 8), "c-gap"),
    (RGBColor(9, 0, 9), "c-curve"),
];
const AXIS: RGBColor = MARKS[5].0;
const GRID: RGBColor = MARKS[6].0;
const GAP: RGBColor = MARKS[7].0;
const CURVE: RGBColor = MARKS[8].0;

/// The figure with its legend and the same numbers as a table.
pub(super) fn trend(days: &[Day]) -> Markup {
    let drawn = draw(days).unwrap_or_default();
    let summary = summary(days);
    let used: Vec<usize> = (0..CLASSES.len())
        .filter(|at| days.iter().any(|day| day.found.keys().any(|class| series(class) == *at)))
        .collect();
    html! {
        figure {
            div.chart tabindex="0" role="img" aria-label=(summary) { (PreEscaped(drawn)) }
            ul.legend aria-hidden="true" {
                @for at in used { li { svg viewBox="0 0 14 14" { rect width="14" height="14" class=(MARKS[at].1) {} } (CLASSES[at].1) } }
                li { svg viewBox="0 0 14 14" { path d="M0 7L7 0M0 14L14 0M7 14L14 7" class="c-gap" {} } "no run completed" }
                li { svg viewBox="0 0 14 14" { path d="M0 7H14" class="c-curve" stroke-width="2" {} } "open at the day's end" }
            }
            figcaption { (summary) }
            details {
                summary { "The same as a table" }
                (table(days))
            }
        }
    }
}

fn summary(days: &[Day]) -> String {
    let week = |days: &[Day]| days.iter().map(Day::total).sum::<i64>();
    let (last, before) = (days.len().saturating_sub(7), days.len().saturating_sub(14));
    let gaps = days.iter().filter(|day| day.is_gap()).count();
    let open = days.last().map_or(0, |day| day.open);
    let gaps = match gaps {
        0 => "every day had its run".to_owned(),
        1 => "1 day without its run".to_owned(),
        n => format!("{n} days without their run"),
    };
    format!(
        "Discrepancies over {} days: {} new in the last 7 days, {} in the 7 before; {open} open; {gaps}.",
        days.len(),
        week(&days[last..]),
        week(&days[before..last])
    )
}

fn table(days: &[Day]) -> Markup {
    let rows = days
        .iter()
        .rev()
        .filter(|day| day.expected > 0 || day.total() > 0)
        .map(|day| {
            let found: Vec<String> =
                day.found.iter().map(|(class, n)| format!("{n} {}", class.to_lowercase().replace('_', " "))).collect();
            vec![
                html! { (day.day) },
                html! { @if day.is_gap() { "missing" } @else { "completed" } },
                html! { @if found.is_empty() { "none" } @else { (found.join(", ")) } },
                html! { (day.open) },
            ]
        })
        .collect();
    super::layout::table("Day by day, the newest first", &["Day", "Run", "New", "#Open"], rows)
}

type Failed = Box<dyn std::error::Error>;

fn draw(days: &[Day]) -> Result<String, Failed> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let (width, height) = (SIZE.0 as i32, SIZE.1 as i32);
        let base = height - BOTTOM;
        let most = days.iter().map(|day| day.total().max(day.open)).max().unwrap_or(0);
        let (step, top) = scale(most);
        let y = |n: i64| base - ((base - TOP) as i64 * n / top) as i32;
        let slot = |at: usize| LEFT + ((width - LEFT) as usize * at / days.len().max(1)) as i32;
        let small = ("sans-serif", 13).into_font().color(&AXIS);
        for n in (0..=top).step_by(usize::try_from(step)?) {
            let line = if n == 0 { AXIS } else { GRID };
            root.draw(&PathElement::new(vec![(LEFT, y(n)), (width, y(n))], line.stroke_width(1)))?;
            let text = n.to_string();
            let x = LEFT - 10 - 7 * text.len() as i32;
            root.draw_text(&text, &small, (x, y(n) - 7))?;
        }
        for (at, day) in days.iter().enumerate() {
            let (left, right) = (slot(at) + 1, slot(at + 1) - 1);
            if day.is_gap() {
                hatch(&root, left - 1, right + 1, TOP, base)?;
            }
            let mut below = 0;
            for (series_at, (colour, _)) in MARKS.iter().enumerate().take(CLASSES.len()) {
                let n: i64 = day.found.iter().filter(|(class, _)| series(class) == series_at).map(|(_, n)| n).sum();
                if n > 0 {
                    let bar = [(left, y(below + n)), (right, y(below))];
                    root.draw(&Rectangle::new(bar, colour.filled()))?;
                    below += n;
                }
            }
            // A date under every Monday would crowd: one in fourteen days is enough to find one's way.
            if (days.len() - 1 - at).is_multiple_of(14) {
                root.draw(&PathElement::new(vec![(left, base), (left, base + 5)], AXIS.stroke_width(1)))?;
                let text = day.day.get(5..).unwrap_or_default();
                root.draw_text(text, &small, ((left - 2).min(width - 38), base + 9))?;
            }
        }
        let begun = days.iter().position(|day| day.expected > 0 || day.total() > 0).unwrap_or(0);
        let curve: Vec<(i32, i32)> =
            days.iter().enumerate().skip(begun).map(|(at, day)| ((slot(at) + slot(at + 1)) / 2, y(day.open))).collect();
        root.draw(&PathElement::new(curve, CURVE.stroke_width(2)))?;
        root.present()?;
    }
    // The size comes from the page, the colours from its sheet.
    svg = svg.replacen(&format!("width=\"{}\" height=\"{}\" ", SIZE.0, SIZE.1), "", 1);
    for (RGBColor(r, g, b), class) in MARKS {
        let colour = format!("#{r:02X}{g:02X}{b:02X}");
        for attribute in ["fill", "stroke"] {
            svg = svg.replace(&format!("{attribute}=\"{colour}\""), &format!("class=\"{class}\""));
        }
    }
    Ok(svg)
}

/// A step of 1, 2 or 5 times a power of ten, and the end of the scale: four to eight steps in all.
fn scale(most: i64) -> (i64, i64) {
    let mut step = 1;
    let mut factor = [2, 5, 10].into_iter().cycle();
    let mut power = 1;
    while step * 6 < most {
        let by = factor.next().unwrap_or(10);
        step = power * by;
        if by == 10 {
            power *= 10;
        }
    }
    (step, step * (most / step + 1).max(4))
}

fn hatch<DB: DrawingBackend>(
    root: &DrawingArea<DB, plotters::coord::Shift>,
    left: i32,
    right: i32,
    top: i32,
    base: i32,
) -> Result<(), Failed>
where
    DB::ErrorType: 'static,
{
    let width = right - left;
    let mut y = top;
    while y < base {
        let end = (y + width).min(base);
        root.draw(&PathElement::new(vec![(left, end), (left + end - y, y)], GAP.stroke_width(1)))?;
        y += 6;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days() -> Vec<Day> {
        (0..90)
            .map(|at| Day {
                day: format!("2026-09-{:02}", at % 30 + 1),
                completed: i64::from(at != 40),
                expected: i64::from(at > 5),
                found: [("MISSING_OURS".to_owned(), at % 4)].into_iter().filter(|(_, n)| *n > 0).collect(),
                open: at % 7,
            })
            .collect()
    }

    #[test]
    fn the_picture_has_no_colour_and_no_style_of_its_own() {
        let svg = trend(&days()).into_string();
        assert!(svg.contains("class=\"c-s1\"") && svg.contains("class=\"c-curve\""), "{svg}");
        assert!(!svg.contains("style=") && !svg.contains("=\"#0"), "{svg}");
    }

    #[test]
    fn a_day_without_its_run_is_hatched_and_a_day_before_the_first_run_is_not() {
        let with = draw(&days()).unwrap().matches("c-gap").count();
        let mut complete = days();
        complete[40].completed = 1;
        assert_eq!(draw(&complete).unwrap().matches("c-gap").count(), 0);
        assert!(with > 10);
        assert!(!days()[0].is_gap() && days()[40].is_gap());
    }

    #[test]
    fn the_scale_has_round_steps_and_room_for_the_most() {
        assert_eq!(scale(0), (1, 4));
        assert_eq!(scale(7), (2, 8));
        for most in [0, 1, 3, 9, 60, 61, 999, 1_000_000] {
            let (step, top) = scale(most);
            assert!(top > most && top % step == 0 && top / step <= 8, "{most}: {step} {top}");
        }
    }
}
