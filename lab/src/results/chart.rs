//! A table of a page as a picture: a line for each row, a mark for each column that is asked for, by decades.
//!
//! The page stays what is read and corrected; the picture follows from it.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thiserror::Error;

use super::plot::{COLOURS, FONT};

const WIDTH: u32 = 760;
const LINE: u32 = 30;
const HEAD: u32 = 44;
const LEGEND: u32 = 28;
const FOOT: u32 = 60;
/// Room for the names of rows.
const NAMES: u32 = 210;
/// Width of one entry of the legend.
const LEGEND_ENTRY: i32 = 180;

/// Reason why a table can't be drawn.
#[derive(Debug, Error)]
pub enum ChartError {
    /// There is no such table.
    #[error("the page has no table below a heading with `{0}`")]
    NoTable(String),
    /// The table is another one.
    #[error("the table has no column `{wanted}`; it has: {known}")]
    NoColumn {
        /// Name that was asked for.
        wanted: String,
        /// Names that there are.
        known: String,
    },
    /// There is nothing to see.
    #[error("no row has a number above 0 in any of these columns")]
    Empty,
    /// The picture.
    #[error("cannot draw the chart: {0}")]
    Draw(String),
}

/// Picture to draw.
pub struct Chart<'a> {
    /// Title above it.
    pub title: &'a str,
    /// Unit of its numbers.
    pub unit: &'a str,
    /// Part of the heading above the table.
    pub under: &'a str,
    /// The columns, by their names.
    pub columns: &'a [String],
}

/// A row with what is drawn of it.
type ChartLine = (String, Vec<Option<f64>>);

impl Chart<'_> {
    /// Draws the table of this page as SVG.
    pub fn draw(&self, page: &str) -> Result<String, ChartError> {
        let lines = self.read(page)?;
        let numbers = || lines.iter().flat_map(|(_, cells)| cells.iter().flatten().copied());
        let least = numbers().fold(f64::INFINITY, f64::min);
        let most = numbers().fold(least, f64::max);
        if !least.is_finite() {
            return Err(ChartError::Empty);
        }
        let range = 10f64.powf(least.log10().floor())..10f64.powf(most.log10().ceil().max(1.0));
        self.drawn(&lines, range).map_err(|error| ChartError::Draw(error.to_string()))
    }

    fn read(&self, page: &str) -> Result<Vec<ChartLine>, ChartError> {
        let is_heading = |line: &&str| line.starts_with('#') && line.contains(self.under);
        let mut rows = (page.lines().skip_while(|line| !is_heading(line)).skip(1))
            .take_while(|line| !line.starts_with('#'))
            .skip_while(|line| !line.starts_with('|'))
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
        let head = rows.next().ok_or_else(|| ChartError::NoTable(self.under.to_owned()))?;
        let column = |name: &String| {
            let unknown = || ChartError::NoColumn { wanted: name.clone(), known: head.join(", ") };
            head.iter().position(|cell| cell == name).ok_or_else(unknown)
        };
        let columns: Vec<usize> = self.columns.iter().map(column).collect::<Result<_, _>>()?;
        let line = |row: Vec<&str>| {
            let cells = columns.iter().map(|&at| row.get(at).and_then(|cell| number(cell)));
            (row[0].to_owned(), cells.collect::<Vec<_>>())
        };
        let lines = rows.skip(1).map(line);
        Ok(lines.filter(|(_, cells)| cells.iter().any(Option::is_some)).collect())
    }

    fn drawn(
        &self,
        lines: &[ChartLine],
        range: std::ops::Range<f64>,
    ) -> Result<String, DrawingAreaErrorKind<std::io::Error>> {
        let count = lines.len();
        let mut svg = String::new();
        {
            let size = (WIDTH, HEAD + LEGEND + FOOT + LINE * count as u32);
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            root.fill(&WHITE)?;
            root.draw(&Text::new(self.title.to_owned(), (12, 14), (FONT, 17)))?;
            for (index, name) in self.columns.iter().enumerate() {
                let at = (20 + index as i32 * LEGEND_ENTRY, HEAD as i32 + 8);
                root.draw(&Circle::new(at, 5, COLOURS[index % COLOURS.len()].filled()))?;
                root.draw(&Text::new(name.replace('`', ""), (at.0 + 12, at.1 - 6), (FONT, 14)))?;
            }
            let (_, area) = root.split_vertically(HEAD + LEGEND);
            let mut chart = ChartBuilder::on(&area)
                .margin_right(44)
                .x_label_area_size(44)
                .y_label_area_size(NAMES)
                .build_cartesian_2d(range.clone().log_scale(), -0.6..count as f64 - 0.4)?;
            (chart.configure_mesh())
                .light_line_style(WHITE)
                .bold_line_style(RGBColor(215, 215, 215))
                .x_desc(self.unit)
                .x_label_formatter(&|value| super::table::decimal(*value))
                .disable_y_mesh()
                .y_labels(0)
                .label_style((FONT, 13))
                .axis_desc_style((FONT, 14))
                .draw()?;
            for (row, (name, cells)) in lines.iter().enumerate() {
                // The first row on top.
                let y = (count - 1 - row) as f64;
                let line = PathElement::new([(range.start, y), (range.end, y)], RGBColor(225, 225, 225));
                chart.draw_series([line])?;
                let marks = cells.iter().enumerate().filter_map(|(column, cell)| Some((column, (*cell)?)));
                let marks = marks.map(|(column, x)| {
                    Circle::new((x, y), 5, COLOURS[column % COLOURS.len()].mix(0.85).filled())
                });
                chart.draw_series(marks)?;
                let (left, middle) = chart.backend_coord(&(range.start, y));
                let place = Pos::new(HPos::Right, VPos::Center);
                let style = (FONT, 13).into_text_style(&root).pos(place);
                root.draw(&Text::new(name.clone(), (left - 8, middle), style))?;
            }
            root.present()?;
        }
        Ok(svg)
    }
}

/// A cell's number, without the range in brackets behind it; none if it holds words or nothing, or what has no
/// place among decades.
fn number(cell: &str) -> Option<f64> {
    let number = cell.split(" (").next().unwrap_or(cell);
    let plain: String = number.chars().filter(|c| !matches!(c, ',' | '*')).collect();
    plain.parse().ok().filter(|number| *number > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\n| a | b |\n|---|---|\n| x | 1 |\n\n## Wanted, here\n\nwords\n\n\
                        | pair | ours, bytes | theirs |\n|---|---|---|\n| one | 1,234 (999 to 1,300) | **20** |\n| two | | no |\n\
                        | three | 7 | |\n";

    fn draw(under: &str, columns: &[&str]) -> Result<String, ChartError> {
        let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
        Chart { title: "A title", unit: "bytes", under, columns: &columns }.draw(PAGE)
    }

    #[test]
    fn a_table_of_a_page_is_drawn() {
        let svg = draw("Wanted", &["ours, bytes", "theirs"]).unwrap();
        assert!(["A title", "theirs", "one", "three"].iter().all(|word| svg.contains(word)), "{svg}");
        assert!(!svg.contains("two"), "it has no numbers");
        // Two of the legend, three of the rows.
        assert_eq!(svg.matches("<circle").count(), 5);
    }

    #[test]
    fn what_is_not_there_is_told() {
        let told = |under, columns: &[&str]| draw(under, columns).unwrap_err().to_string();
        assert!(told("Elsewhere", &["b"]).contains("no table"));
        assert!(told("Wanted", &["b"]).contains("pair, ours, bytes, theirs"));
        assert!(told("Page", &["a"]).contains("no row has a number"));
    }
}
