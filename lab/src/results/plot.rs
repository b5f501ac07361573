//! The results as a picture: a panel for each case, seconds over size where sizes differ, else a bar for
//! each program.

use std::collections::BTreeSet;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::summary::{Point, Summary};
use super::table::short;
use crate::programs;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const PANEL: (u32, u32) = (460, 340);
const HEAD: u32 = 44;
const LEGEND_LINE: u32 = 26;
/// Width of one entry of the legend.
const LEGEND_ENTRY: i32 = 120;
const MAX_COLUMNS: usize = 3;
const FONT: &str = "sans-serif";
/// Distinguishable also for the colour-blind (after Okabe and Ito, 2008), one for each program.
const COLOURS: [RGBColor; 10] = [
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
pub fn draw(name: &str, about: &str, summary: &Summary) -> Result<String, String> {
    let points: Vec<Point> = summary.points().collect();
    let cases = summary.cases();
    let columns = cases.len().min(if cases.len() == 4 { 2 } else { MAX_COLUMNS });
    let lines = cases.len().div_ceil(columns);
    let width = PANEL.0 * (columns as u32).max(2);
    let programs = summary.programs();
    let legend = LEGEND_LINE * legend_lines(programs.len(), width);
    let height = HEAD + legend + PANEL.1 * lines as u32;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        let told = |error: DrawingAreaErrorKind<_>| error.to_string();
        root.fill(&WHITE).map_err(told)?;
        let (head, rest) = root.split_vertically(HEAD);
        head.draw(&Text::new(format!("{name}: {about}"), (12, 14), (FONT, 17))).map_err(told)?;
        let (keys, panels) = rest.split_vertically(legend);
        draw_legend(&keys, &programs, width).map_err(told)?;
        for (panel, case) in panels.split_evenly((lines, columns)).iter().zip(&cases) {
            let here: Vec<Point> = points.iter().filter(|point| point.case == *case).copied().collect();
            match sizes(&points) {
                Some(sizes) => {
                    draw_lines(panel, &root, case, &here, (sizes, seconds(&points))).map_err(told)?
                }
                None => draw_bars(panel, case, &here, slowest(&points)).map_err(told)?,
            }
        }
        root.present().map_err(told)?;
    }
    Ok(svg)
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn colour(program: &str) -> RGBColor {
    let index = programs::ALL.iter().position(|other| other.name() == program).unwrap_or_default();
    COLOURS[index % COLOURS.len()]
}

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

fn draw_legend(area: &Area, programs: &[&str], width: u32) -> Drawn {
    for (index, program) in programs.iter().enumerate() {
        let (line, column) = (index / per_line(width), index % per_line(width));
        let (x, y) = (14 + column as i32 * LEGEND_ENTRY, 4 + line as i32 * LEGEND_LINE as i32);
        let colour = colour(program);
        area.draw(&PathElement::new([(x, y + 8), (x + 22, y + 8)], colour.stroke_width(2)))?;
        draw_mark(area, program, (x + 11, y + 8))?;
        area.draw(&Text::new((*program).to_owned(), (x + 28, y + 2), (FONT, 14)))?;
    }
    Ok(())
}

/// A shape for each program too, so that colour is not all that tells lines apart.
fn draw_mark(area: &Area, program: &str, at: (i32, i32)) -> Drawn {
    let style = colour(program).filled();
    let index = programs::ALL.iter().position(|other| other.name() == program).unwrap_or_default();
    match index % 4 {
        0 => area.draw(&Circle::new(at, 4, style)),
        1 => area.draw(&TriangleMarker::new(at, 5, style)),
        2 => area.draw(&Rectangle::new([(at.0 - 4, at.1 - 4), (at.0 + 4, at.1 + 4)], style)),
        _ => area.draw(&Cross::new(at, 4, colour(program).stroke_width(2))),
    }
}

/// A power of ten bytes.
fn decade(bytes: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];
    let (unit, name) = units.into_iter().find(|(unit, _)| bytes * 1.001 >= *unit).unwrap_or((1.0, "B"));
    format!("{:.0} {name}", bytes / unit)
}

/// Seconds over size, both by decades.
fn draw_lines(
    area: &Area,
    root: &Area,
    case: &str,
    points: &[Point],
    axes: (Range<f64>, Range<f64>),
) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .caption(case, (FONT, 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(58)
        .build_cartesian_2d(axes.0.log_scale(), axes.1.log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .x_desc("size")
        .y_desc("seconds (median, with fastest and slowest)")
        .x_label_formatter(&|size| decade(*size))
        .y_label_formatter(&|seconds| seconds.to_string())
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .draw()?;
    for program in points.iter().map(|point| point.program).collect::<BTreeSet<_>>() {
        let mut line: Vec<&Point> = points.iter().filter(|point| point.program == program).collect();
        line.sort_by_key(|point| point.bytes);
        let colour = colour(program);
        let medians = line.iter().map(|point| (point.bytes as f64, point.median));
        chart.draw_series(LineSeries::new(medians, colour.stroke_width(2)))?;
        for point in line {
            let size = point.bytes as f64;
            chart.draw_series([PathElement::new([(size, point.low), (size, point.high)], colour)])?;
            draw_mark(root, program, chart.backend_coord(&(size, point.median)))?;
        }
    }
    Ok(())
}

/// A bar for each program and data, from zero.
fn draw_bars(area: &Area, case: &str, points: &[Point], most: f64) -> Drawn {
    // The first on top.
    let points: Vec<Point> = points.iter().rev().copied().collect();
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
    let mut chart = ChartBuilder::on(area)
        .caption(case, (FONT, 16))
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
        let colour = colour(point.program);
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
