//! The results as a picture: a panel for each case, with seconds over size where sizes differ, or else a bar
//! for each program; or what the scenario asks for, throughput over round-trip time, seconds over files or over
//! the network's rate.

use std::collections::BTreeSet;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::summary::{Point, ResultSummary, distinct};
use super::table::short;
use super::{Axis, ReportAbout};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const PANEL: (u32, u32) = (460, 340);
const HEAD: u32 = 44;
const LEGEND_LINE: u32 = 26;
/// Width of one entry of the legend.
const LEGEND_ENTRY: i32 = 160;
const MAX_COLUMNS: usize = 3;
pub(super) const FONT: &str = "sans-serif";
/// Distinguishable also for the colour-blind (after Okabe and Ito, 2008), one for each program as they come.
pub(super) const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(120, 190, 80),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(90, 90, 90),
    RGBColor(150, 110, 60),
    RGBColor(120, 80, 180),
];

/// Draws it as SVG.
pub fn draw(name: &str, about: &ReportAbout, summary: &ResultSummary) -> Result<String, String> {
    // Points without a place on the axis are in the table.
    let has_place = |point: &Point| about.plot != Some(Axis::Rate) || rate(point) > 0.0;
    let points: Vec<Point> = summary.points().filter(has_place).collect();
    let names = distinct(points.iter().map(|point| panel(about.plot, point)));
    let columns = names.len().min(if names.len() == 4 { 2 } else { MAX_COLUMNS });
    let lines = names.len().div_ceil(columns);
    let width = PANEL.0 * (columns as u32).max(2);
    let palette = Palette(summary.programs());
    let legend = LEGEND_LINE * legend_lines(palette.0.len(), width);
    let height = HEAD + legend + PANEL.1 * lines as u32;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        let told = |error: DrawingAreaErrorKind<_>| error.to_string();
        root.fill(&WHITE).map_err(told)?;
        let (head, rest) = root.split_vertically(HEAD);
        head.draw(&Text::new(format!("{name}: {}", about.text), (12, 14), (FONT, 17))).map_err(told)?;
        let (keys, panels) = rest.split_vertically(legend);
        draw_legend(&keys, &palette, width).map_err(told)?;
        for (area, name) in panels.split_evenly((lines, columns)).iter().zip(&names) {
            let is_here = |point: &&Point| panel(about.plot, point) == *name;
            let here: Vec<Point> = points.iter().filter(is_here).copied().collect();
            let panel = Panel { area, root: &root, name, points: &here, palette: &palette };
            match (about.plot, sizes(&points)) {
                (Some(Axis::RoundTrip), _) => panel.draw_rates(&points),
                (Some(Axis::Files), _) => {
                    let most = points.iter().map(|point| point.files).max().unwrap_or(1) as f64;
                    let least = points.iter().map(|point| point.files).min().unwrap_or(1).max(1) as f64;
                    panel.draw_lines((least / 1.5..most * 1.5, seconds(&points)), FILES)
                }
                (Some(Axis::Rate), _) => {
                    let rates = || points.iter().map(rate);
                    let least = rates().fold(f64::INFINITY, f64::min);
                    let most = rates().fold(least, f64::max);
                    panel.draw_lines((least / 1.5..most * 1.5, seconds(&points)), RATES)
                }
                (None, Some(sizes)) => panel.draw_lines((sizes, seconds(&points)), SIZES),
                (None, None) => panel.draw_bars(slowest(&points)),
            }
            .map_err(told)?;
        }
        root.present().map_err(told)?;
    }
    Ok(svg)
}

/// Panel that a point is drawn in: that of its case, without what the horizontal axis tells.
fn panel(plot: Option<Axis>, point: &Point) -> String {
    match plot {
        None => point.case.to_owned(),
        Some(Axis::RoundTrip) => {
            let words = point.case.split(", ").filter(|word| !word.starts_with("RTT "));
            words.collect::<Vec<_>>().join(", ")
        }
        Some(Axis::Files) => {
            let is_number = |word: &&str| word.parse::<u64>().is_ok();
            let data: Vec<_> = point.data.split(' ').filter(|word| !is_number(word)).collect();
            format!("{} {}", point.case, data.join(" ")).trim().to_owned()
        }
        Some(Axis::Rate) => point.data.to_owned(),
    }
}

/// Scale of a horizontal axis by decades.
#[derive(Clone, Copy)]
struct Scale {
    name: &'static str,
    of: fn(&Point) -> f64,
    label: fn(f64) -> String,
}

const SIZES: Scale = Scale { name: "size", of: |point| point.bytes as f64, label: decade };
const FILES: Scale =
    Scale { name: "files", of: |point| point.files as f64, label: |files| format!("{files:.0}") };

const RATES: Scale = Scale {
    name: "network, Mbit/s",
    of: rate,
    label: |rate| {
        let mega = rate / 1e6;
        if mega < 1.0 { format!("{mega:.1}") } else { format!("{mega:.0}") }
    },
};

/// Bits a second, as a case has them in its name: `10 Mbit/s`; or 0.
fn rate(point: &Point) -> f64 {
    let words: Vec<&str> = point.case.split([' ', ',']).collect();
    let units = [("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)];
    let read = |pair: &[&str]| {
        let unit = units.iter().find(|(name, _)| *name == pair[1])?.1;
        Some(pair[0].parse::<f64>().ok()? * unit)
    };
    words.windows(2).find_map(read).unwrap_or_default()
}

/// A part of the picture, and what is drawn there.
struct Panel<'a, 'b> {
    area: &'a Area<'b>,
    root: &'a Area<'b>,
    name: &'a str,
    points: &'a [Point<'a>],
    palette: &'a Palette<'a>,
}

/// Programs in the order of their colours.
struct Palette<'a>(Vec<&'a str>);

impl Palette<'_> {
    fn index(&self, program: &str) -> usize {
        self.0.iter().position(|other| *other == program).unwrap_or_default()
    }

    fn colour(&self, program: &str) -> RGBColor {
        COLOURS[self.index(program) % COLOURS.len()]
    }

    /// A shape for each program too, so that colour is not all that tells lines apart.
    fn draw_mark(&self, area: &Area, program: &str, at: (i32, i32)) -> Drawn {
        let colour = self.colour(program);
        let style = colour.filled();
        match self.index(program) % 4 {
            0 => area.draw(&Circle::new(at, 4, style)),
            1 => area.draw(&TriangleMarker::new(at, 5, style)),
            2 => area.draw(&Rectangle::new([(at.0 - 4, at.1 - 4), (at.0 + 4, at.1 + 4)], style)),
            _ => area.draw(&Cross::new(at, 4, colour.stroke_width(2))),
        }
    }
}

pub(super) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The range of sizes, if there are several of the same kind of data.
fn sizes(points: &[Point]) -> Option<Range<f64>> {
    let kind = |point: &Point| point.data.split(' ').next().map(str::to_owned);
    if points.iter().any(|point| kind(point) != kind(&points[0])) {
        return None;
    }
    let low = points.iter().map(|point| point.bytes).min()?;
    let high = points.iter().map(|point| point.bytes).max()?;
    (low > 0 && high > 2 * low).then(|| low as f64 / 1.5..high as f64 * 1.5)
}

/// The range of seconds: half decades, with two powers of ten in it at least.
fn seconds(points: &[Point]) -> Range<f64> {
    let low = points.iter().map(|point| point.low).fold(f64::INFINITY, f64::min).max(1e-6).log10();
    let high = slowest(points).log10();
    let halves = ((low * 2.0 - 0.1).floor() / 2.0, (high * 2.0 + 0.1).ceil() / 2.0);
    let has_two = halves.1.floor() - halves.0.ceil() >= 1.0;
    let (low, high) = if has_two { halves } else { (low.floor(), high.ceil().max(low.floor() + 1.0)) };
    10f64.powf(low - 0.01)..10f64.powf(high + 0.01)
}

fn slowest(points: &[Point]) -> f64 {
    points.iter().map(|point| point.high).fold(1e-6, f64::max)
}

fn per_line(width: u32) -> usize {
    (width as i32 / LEGEND_ENTRY).max(1) as usize
}

fn legend_lines(programs: usize, width: u32) -> u32 {
    programs.div_ceil(per_line(width)) as u32
}

fn draw_legend(area: &Area, palette: &Palette, width: u32) -> Drawn {
    for (index, program) in palette.0.iter().enumerate() {
        let (line, column) = (index / per_line(width), index % per_line(width));
        let (x, y) = (14 + column as i32 * LEGEND_ENTRY, 4 + line as i32 * LEGEND_LINE as i32);
        let colour = palette.colour(program);
        area.draw(&PathElement::new([(x, y + 8), (x + 22, y + 8)], colour.stroke_width(2)))?;
        palette.draw_mark(area, program, (x + 11, y + 8))?;
        area.draw(&Text::new((*program).to_owned(), (x + 28, y + 2), (FONT, 14)))?;
    }
    Ok(())
}

/// A power of ten bytes.
fn decade(bytes: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];
    let (unit, name) = units.into_iter().find(|(unit, _)| bytes * 1.001 >= *unit).unwrap_or((1.0, "B"));
    format!("{:.0} {name}", bytes / unit)
}

impl<'a, 'b> Panel<'a, 'b> {
    /// Seconds over something, both by decades.
    fn draw_lines(&self, axes: (Range<f64>, Range<f64>), scale: Scale) -> Drawn {
        let mut chart = self.chart().build_cartesian_2d(axes.0.log_scale(), axes.1.log_scale())?;
        (chart.configure_mesh())
            .max_light_lines(3)
            .light_line_style(RGBColor(240, 240, 240))
            .bold_line_style(RGBColor(215, 215, 215))
            .x_desc(scale.name)
            .y_desc("seconds (median, with fastest and slowest)")
            .x_label_formatter(&|value| (scale.label)(*value))
            .y_label_formatter(&|seconds| seconds.to_string())
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .draw()?;
        self.draw_series(&mut chart, |point| ((scale.of)(point), [point.low, point.median, point.high]))
    }

    /// Throughput over round-trip time, both from zero.
    fn draw_rates(&self, all: &[Point]) -> Drawn {
        let farthest = all.iter().map(|point| point.round_trip * 1e3).fold(1.0, f64::max);
        let rates = |point: &Point| {
            [point.high, point.median, point.low].map(|seconds| point.bytes as f64 * 8.0 / 1e6 / seconds)
        };
        let fastest = all.iter().map(|point| rates(point)[2]).fold(1e-6, f64::max);
        let axes = (-0.03 * farthest..farthest * 1.05, 0.0..fastest * 1.1);
        let mut chart = self.chart().build_cartesian_2d(axes.0, axes.1)?;
        (chart.configure_mesh())
            .max_light_lines(1)
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(215, 215, 215))
            .x_label_formatter(&|ms| format!("{ms:.0}"))
            .y_label_formatter(&|rate| format!("{rate:.0}"))
            .x_desc("round-trip time, ms")
            .y_desc("Mbit/s (median, with fastest and slowest)")
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .draw()?;
        self.draw_series(&mut chart, |point| (point.round_trip * 1e3, rates(point)))
    }

    fn chart(&self) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
        let mut chart = ChartBuilder::on(self.area);
        chart.caption(self.name, (FONT, 16)).margin(10).x_label_area_size(40).y_label_area_size(58);
        chart
    }

    /// A line for each program; `at` tells where a point is, and its spread around it.
    fn draw_series<X, Y>(
        &self,
        chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
        at: impl Fn(&Point) -> (f64, [f64; 3]),
    ) -> Drawn
    where
        X: Ranged<ValueType = f64>,
        Y: Ranged<ValueType = f64>,
    {
        for program in self.points.iter().map(|point| point.program).collect::<BTreeSet<_>>() {
            let own = self.points.iter().filter(|point| point.program == program);
            let mut line: Vec<(f64, [f64; 3])> = own.map(&at).collect();
            line.sort_by(|one, other| one.0.total_cmp(&other.0));
            let colour = self.palette.colour(program);
            let medians = line.iter().map(|(x, spread)| (*x, spread[1]));
            chart.draw_series(LineSeries::new(medians, colour.stroke_width(2)))?;
            for (x, [low, median, high]) in line {
                chart.draw_series([PathElement::new([(x, low), (x, high)], colour)])?;
                self.palette.draw_mark(self.root, program, chart.backend_coord(&(x, median)))?;
            }
        }
        Ok(())
    }

    /// A bar for each program and data, from zero.
    fn draw_bars(&self, most: f64) -> Drawn {
        // The first on top.
        let points: Vec<Point> = self.points.iter().rev().copied().collect();
        let has_several_data = points.iter().any(|point| point.data != points[0].data);
        let name = |place: &SegmentValue<usize>| match place {
            SegmentValue::CenterOf(index) => points.get(*index).map_or_else(String::new, |point| {
                if has_several_data {
                    format!("{} {}", point.program, point.data)
                } else {
                    point.program.to_owned()
                }
            }),
            _ => String::new(),
        };
        let mut chart = ChartBuilder::on(self.area)
            .caption(self.name, (FONT, 16))
            .margin(10)
            .margin_right(24)
            .x_label_area_size(40)
            .y_label_area_size(if has_several_data { 190 } else { 84 })
            .build_cartesian_2d(0.0..most * 1.15, (0..points.len().saturating_sub(1)).into_segmented())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(points.len())
            .max_light_lines(1)
            .x_desc("seconds (median, with fastest and slowest)")
            .y_label_formatter(&name)
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .draw()?;
        for (index, point) in points.iter().enumerate() {
            let colour = self.palette.colour(point.program);
            let (start, end) = (SegmentValue::Exact(index), SegmentValue::Exact(index + 1));
            let mut bar = Rectangle::new([(0.0, start), (point.median, end)], colour.mix(0.8).filled());
            bar.set_margin(5, 5, 0, 0);
            chart.draw_series([bar])?;
            let middle = SegmentValue::CenterOf(index);
            chart.draw_series([PathElement::new(
                [(point.low, middle.clone()), (point.high, middle.clone())],
                BLACK,
            )])?;
            let label = Text::new(short(point.median), (point.high + most * 0.01, middle), (FONT, 12));
            chart.draw_series([label])?;
        }
        Ok(())
    }
}
