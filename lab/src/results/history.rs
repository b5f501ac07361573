//! Figures over commits as a picture: a panel for each figure, a mark for each run, a line for the aim.
//!
//! Runs are lines of a text, the oldest first: `COMMIT DATE VALUE FIGURE`. A new run is one more line. An aim
//! has `aim` for the commit and `-` for the date. A line that begins with `#` is a comment, and the first one
//! the title.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thiserror::Error;

use super::plot::{COLOURS, Drawn, FONT};
use super::table::{decimal, short};

const PANEL: (u32, u32) = (470, 200);
const HEAD: u32 = 40;
const COLUMNS: usize = 2;
const GREY: RGBColor = RGBColor(215, 215, 215);

/// Reason why no history can be drawn.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// A line of another form.
    #[error("line {0} is not `COMMIT DATE VALUE FIGURE`, with a value of 0 or more")]
    Line(usize),
    /// Nothing to see.
    #[error("the file has no runs")]
    Empty,
    /// The picture.
    #[error("cannot draw the history: {0}")]
    Draw(String),
}

/// The runs of some figures.
#[derive(Debug, Default)]
pub struct History {
    title: String,
    figures: Vec<TrackedFigure>,
}

/// A figure with its runs, the oldest first.
#[derive(Debug)]
struct TrackedFigure {
    name: String,
    aim: Option<f64>,
    runs: Vec<DatedRun>,
}

/// One run.
#[derive(Debug)]
struct DatedRun {
    commit: String,
    date: String,
    value: f64,
}

impl History {
    /// Reads the text of a history.
    pub fn parse(text: &str) -> Result<Self, HistoryError> {
        let mut history = Self::default();
        for (index, line) in text.lines().enumerate() {
            match line.trim().strip_prefix('#') {
                Some(title) if history.title.is_empty() => history.title = title.trim().to_owned(),
                Some(_) => {}
                None if line.trim().is_empty() => {}
                None => history.add(line).ok_or(HistoryError::Line(index + 1))?,
            }
        }
        history.figures.retain(|figure| !figure.runs.is_empty());
        if history.figures.is_empty() { Err(HistoryError::Empty) } else { Ok(history) }
    }

    /// Adds a line; none if it has another form.
    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        let (commit, date, value) = (words.next()?, words.next()?, words.next()?);
        let value: f64 = value.parse().ok().filter(|value| *value >= 0.0 && f64::is_finite(*value))?;
        let name = words.collect::<Vec<_>>().join(" ");
        if name.is_empty() {
            return None;
        }
        let figure = self.figure(name);
        if commit == "aim" {
            figure.aim = Some(value);
        } else {
            figure.runs.push(DatedRun { commit: commit.to_owned(), date: date.to_owned(), value });
        }
        Some(())
    }

    fn figure(&mut self, name: String) -> &mut TrackedFigure {
        let at = self.figures.iter().position(|figure| figure.name == name).unwrap_or_else(|| {
            self.figures.push(TrackedFigure { name, aim: None, runs: Vec::new() });
            self.figures.len() - 1
        });
        &mut self.figures[at]
    }

    /// Draws all figures as SVG.
    pub fn draw(&self) -> Result<String, HistoryError> {
        let lines = self.figures.len().div_ceil(COLUMNS);
        let size = (PANEL.0 * COLUMNS as u32, HEAD + PANEL.1 * lines as u32);
        let mut svg = String::new();
        let mut drawn = || -> Drawn {
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            root.fill(&WHITE)?;
            let (head, rest) = root.split_vertically(HEAD);
            head.draw(&Text::new(self.title.clone(), (12, 14), (FONT, 17)))?;
            for (area, figure) in rest.split_evenly((lines, COLUMNS)).iter().zip(&self.figures) {
                figure.draw(area, &root)?;
            }
            root.present()
        };
        drawn().map_err(|error| HistoryError::Draw(error.to_string()))?;
        Ok(svg)
    }
}

impl TrackedFigure {
    /// Runs stand at equal distances, whatever time lies between them.
    fn draw<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
        root: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> Drawn {
        let most = self.runs.iter().map(|run| run.value).chain(self.aim).fold(0.0, f64::max);
        let top = if most > 0.0 { most * 1.25 } else { 1.0 };
        let right = self.runs.len() as f64 - 0.5;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.name, (FONT, 15))
            .margin(8)
            .margin_right(20)
            .x_label_area_size(34)
            .y_label_area_size(76)
            .build_cartesian_2d(-0.5..right, 0.0..top)?;
        (chart.configure_mesh())
            .disable_x_mesh()
            .x_labels(0)
            .y_labels(5)
            .max_light_lines(1)
            .light_line_style(WHITE)
            .bold_line_style(GREY)
            .y_label_formatter(&|value| digits(*value))
            .label_style((FONT, 12))
            .draw()?;
        if let Some(aim) = self.aim {
            let style = COLOURS[1].stroke_width(1);
            chart.draw_series(LineSeries::new([(-0.5, aim), (right, aim)], style))?;
        }
        let points = || self.runs.iter().enumerate().map(|(index, run)| (index as f64, run.value));
        chart.draw_series(LineSeries::new(points(), COLOURS[0].stroke_width(2)))?;
        chart.draw_series(points().map(|at| Circle::new(at, 4, COLOURS[0].filled())))?;
        let style = (FONT, 12).into_text_style(root);
        let centred = |vertical| style.clone().pos(Pos::new(HPos::Center, vertical));
        for (at, run) in points().zip(&self.runs) {
            let (x, y) = chart.backend_coord(&at);
            root.draw(&Text::new(digits(run.value), (x, y - 7), centred(VPos::Bottom)))?;
            let (_, bottom) = chart.backend_coord(&(at.0, 0.0));
            root.draw(&Text::new(run.commit.clone(), (x, bottom + 6), centred(VPos::Top)))?;
            let day = run.date.split_once('-').map_or(run.date.as_str(), |(_, day)| day);
            root.draw(&Text::new(day.to_owned(), (x, bottom + 19), centred(VPos::Top)))?;
        }
        Ok(())
    }
}

/// A number as an axis has it: no digit too many.
fn digits(value: f64) -> String {
    if value >= 1000.0 {
        return decimal(value);
    }
    let text = short(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: &str = "# A title\n# a comment\n\n1111111 2026-11-22 1.25 one file: x rsync\n\
                        2222222 2026-11-23 7,000 bad\n";

    #[test]
    fn a_panel_is_drawn_for_each_figure() {
        let text = "# A title\n# words\n\naim - 0.75 one file: x rsync\n1111111 2026-11-22 1.25 one file: x rsync\n\
                    2222222 2026-11-23 0.5 one file: x rsync\n1111111 2026-11-22 12345 a tree: bytes\naim - 3 never run\n";
        let svg = History::parse(text).unwrap().draw().unwrap();
        let words = ["A title", "one file: x rsync", "a tree: bytes", "2222222", "11-23", "1.25", "12,345"];
        assert!(words.iter().all(|word| svg.contains(word)), "{svg}");
        assert!(!svg.contains("never run") && !svg.contains("words"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
    }

    #[test]
    fn a_figure_of_nothing_but_zeros_has_an_axis() {
        let svg = History::parse("1111111 2026-11-22 0 long functions").unwrap().draw().unwrap();
        assert_eq!(svg.matches("<circle").count(), 1);
    }

    #[test]
    fn a_line_of_another_form_is_named() {
        let error = |text| History::parse(text).unwrap_err().to_string();
        assert!(error(RUNS).starts_with("line 5 "));
        assert!(error("1111111 2026-11-22 -1 figure").starts_with("line 1 "));
        assert!(error("1111111 2026-11-22 1").starts_with("line 1 "));
        assert!(error("# A title\naim - 1 figure\n").contains("no runs"));
    }

    #[test]
    fn numbers_have_no_digit_too_many() {
        for (value, text) in
            [(0.5, "0.5"), (1.0, "1"), (100.0, "100"), (0.961, "0.961"), (52_008_621.0, "52,008,621")]
        {
            assert_eq!(digits(value), text);
        }
    }
}
