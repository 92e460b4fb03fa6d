//! Line charts as inline SVG: the only file that knows the chart library.
//!
//! kuva draws axes, grid, ticks, lines and markers. Added to it here: colours that follow the page's light or dark scheme, a
//! legend whose keys are drawn like the lines, and what a screen reader says. Its clip paths are taken out: nothing that is
//! drawn leaves the axes, and their ids come from a counter, so that the same report would not be the same bytes twice.

use std::sync::Arc;

use kuva::backend::svg::SvgBackend;
use kuva::plot::line::LineStyle;
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{LinePlot, ScatterPlot};
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{Primitive, Scene, TextAnchor, render_multiple};
use kuva::render::theme::Theme;

use super::look::{self, Look, Marker};

/// Width of a chart; its page scales it.
const WIDTH: f64 = 640.0;
/// Height between the axes, unless there are more ticks than have room.
const PLOT_HEIGHT: f64 = 264.0;
/// Height for a tick of the vertical axis.
const TICK_HEIGHT: f64 = 20.0;
/// Room for the labels below the horizontal axis.
const BELOW: f64 = 50.0;
/// Room for half a tick label at the right.
const RIGHT: f64 = 40.0;
/// Mean width of a letter; text is measured nowhere, because the reader's font is not known.
const LETTER: f64 = 7.4;
const TEXT_SIZE: u32 = 13;
/// Height of a row of the legend.
const LEGEND_ROW: f64 = 22.0;
/// Width of a key of the legend, with the space that follows it.
const KEY: f64 = 42.0;
const MARKER_SIZE: f64 = 4.2;
/// Letters of a legend entry; more are cut off.
const LEGEND_LETTERS_MAX: usize = 72;

/// Writes a value of an axis at its tick.
pub type TickText = Arc<dyn Fn(f64) -> String + Send + Sync>;

/// An axis.
#[derive(Clone)]
pub struct Axis {
    /// What it shows, with the unit.
    pub label: String,
    /// Where it begins.
    pub min: f64,
    /// Where it ends; larger than `min`.
    pub max: f64,
    /// From tick to tick; ticks are at its multiples.
    pub step: f64,
    /// Writes a tick.
    pub tick: TickText,
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub look: Look,
    /// Its points; all within the axes.
    pub points: Vec<(f64, f64)>,
}

/// A line chart.
#[derive(Clone)]
pub struct Chart {
    /// Names the chart in its page: letters, digits and hyphens.
    pub id: String,
    /// What a screen reader calls it.
    pub title: String,
    /// What a screen reader says of it.
    pub description: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines, the first at the bottom.
    pub series: Vec<Series>,
    /// Whether each point has its marker.
    pub markers: bool,
}

impl Chart {
    /// The chart as an `svg` element that takes its colours from the page's [`look::css`].
    pub fn inline(&self) -> String {
        let (width, height, body) = self.body();
        format!("{}{body}", head(&self.id, &self.title, &self.description, (width, height), ""))
    }

    /// The chart as a file of its own, in light and in dark.
    pub fn standalone(&self) -> String {
        let (width, height, body) = self.body();
        standalone(&self.id, &self.title, &self.description, (width, height), &body)
    }

    /// Width, height and everything within the `svg` element, its end included.
    fn body(&self) -> (f64, f64, String) {
        let legend = Legend::new(&self.series);
        let top = 36.0 + f64::from(legend.rows) * LEGEND_ROW;
        let height = top + self.plot_height() + BELOW;
        let frame = Frame { left: self.left(), top, chart: self };
        let mut plots = Vec::new();
        for series in &self.series {
            plots.extend(draw(&series.look, &series.points, self.markers));
        }
        for key in &legend.keys {
            let (middle, y) = (key.x + 15.0, 38.0 + f64::from(key.row) * LEGEND_ROW);
            let ends = [(key.x, y), (middle, y), (key.x + 30.0, y)].map(|(x, y)| frame.data(x, y));
            plots.push(line(&key.look, &ends));
            if self.markers {
                plots.push(markers(&key.look, &ends[1..2]));
            }
        }
        let mut scene = render_multiple(plots, self.layout(&frame, height));
        scene.elements.retain(|element| !matches!(element, Primitive::ClipStart { .. } | Primitive::ClipEnd));
        scene.defs.clear();
        text(&mut scene, 8.0, 18.0, &self.y.label);
        for key in &legend.keys {
            text(&mut scene, key.x + 36.0, 42.5 + f64::from(key.row) * LEGEND_ROW, &key.name);
        }
        let svg = SvgBackend::new().render_scene(&scene);
        // What comes before is the library's own opening tag and its name.
        let body = svg.split_once("-->").map_or(svg.as_str(), |(_, body)| body);
        (WIDTH, height, body.to_owned())
    }

    fn plot_height(&self) -> f64 {
        PLOT_HEIGHT.max(TICK_HEIGHT * (self.y.max - self.y.min) / self.y.step)
    }

    /// Room for the tick labels of the vertical axis.
    fn left(&self) -> f64 {
        let first = (self.y.min / self.y.step).ceil() as i64;
        let last = (self.y.max / self.y.step).floor() as i64;
        let widest = (first..=last).map(|tick| (self.y.tick)(tick as f64 * self.y.step).chars().count()).max();
        // Names have wider letters than numbers.
        let letter = if widest > Some(12) { 1.12 * LETTER } else { LETTER };
        (22.0 + letter * widest.unwrap_or(0) as f64).max(48.0)
    }

    fn layout(&self, frame: &Frame, height: f64) -> Layout {
        let theme = Theme {
            background: "none".to_owned(),
            axis_color: "var(--fw-axis)".to_owned(),
            grid_color: "var(--fw-grid)".to_owned(),
            tick_color: "var(--fw-axis)".to_owned(),
            text_color: "currentColor".to_owned(),
            ..Theme::light()
        };
        let (x, y) = (&self.x, &self.y);
        Layout::new((x.min, x.max), (y.min, y.max))
            .with_theme(theme)
            .with_width(WIDTH)
            .with_height(height)
            .with_force_margins(frame.left, RIGHT)
            .with_force_margins_y(frame.top, BELOW)
            .with_x_axis_min(x.min)
            .with_x_axis_max(x.max)
            .with_y_axis_min(y.min)
            .with_y_axis_max(y.max)
            .with_x_tick_step(x.step)
            .with_y_tick_step(y.step)
            .with_x_tick_format(TickFormat::Custom(Arc::clone(&x.tick)))
            .with_y_tick_format(TickFormat::Custom(Arc::clone(&y.tick)))
            .with_x_label(&x.label)
            .with_tick_size(TEXT_SIZE)
            .with_label_size(TEXT_SIZE)
    }
}

/// Charts as one file, in rows, in light and in dark.
pub fn side_by_side(id: &str, title: &str, description: &str, columns: usize, charts: &[Chart]) -> String {
    let (mut all, mut y) = (String::new(), 0.0);
    for row in charts.chunks(columns) {
        let bodies: Vec<_> = row.iter().map(Chart::body).collect();
        let row_height = bodies.iter().map(|&(_, height, _)| height).fold(0.0, f64::max);
        for (column, (width, height, body)) in bodies.into_iter().enumerate() {
            let x = WIDTH * column as f64;
            all += &format!("<svg x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\">{body}");
        }
        y += row_height;
    }
    let width = WIDTH * columns.min(charts.len()) as f64;
    standalone(id, title, description, (width, y), &format!("{all}</svg>"))
}

/// A picture as a file of its own; `body` ends the `svg` element.
fn standalone(id: &str, title: &str, description: &str, (width, height): (f64, f64), body: &str) -> String {
    let style = look::css(":root");
    format!(
        "{}<style>{style}svg{{color:var(--fw-ink);font-family:system-ui,sans-serif}}</style>\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--fw-page)\" />{body}\n",
        head(id, title, description, (width, height), &format!(" width=\"{width}\" height=\"{height}\"")),
    )
}

/// The beginning of a picture, with what a screen reader says of it.
fn head(id: &str, title: &str, description: &str, (width, height): (f64, f64), size: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\"{size} role=\"img\" \
         aria-labelledby=\"{id}-title {id}-desc\" fill=\"currentColor\">\
         <title id=\"{id}-title\">{}</title><desc id=\"{id}-desc\">{}</desc>",
        escape(title),
        escape(description),
    )
}

/// Where the axes lie, to place the legend's keys in the data's coordinates, in which the library draws.
struct Frame<'a> {
    left: f64,
    top: f64,
    chart: &'a Chart,
}

impl Frame<'_> {
    fn data(&self, x: f64, y: f64) -> (f64, f64) {
        let Chart { x: across, y: up, .. } = self.chart;
        let right_of_axis = (x - self.left) / (WIDTH - self.left - RIGHT);
        let above_axis = (self.top + self.chart.plot_height() - y) / self.chart.plot_height();
        (across.min + right_of_axis * (across.max - across.min), up.min + above_axis * (up.max - up.min))
    }
}

struct Key {
    name: String,
    look: Look,
    x: f64,
    row: u16,
}

/// The keys of the series, in as many rows as they need.
struct Legend {
    keys: Vec<Key>,
    rows: u16,
}

impl Legend {
    fn new(all: &[Series]) -> Legend {
        const LEFT: f64 = 8.0;
        let (mut keys, mut x, mut row) = (Vec::new(), LEFT, 0);
        for (number, series) in all.iter().enumerate() {
            // Boxes of one policy are many series with one key.
            if all[..number].iter().any(|before| before.name == series.name) {
                continue;
            }
            let mut name: String = series.name.chars().take(LEGEND_LETTERS_MAX).collect();
            if name.len() < series.name.len() {
                name.push('…');
            }
            let width = KEY + LETTER * name.chars().count() as f64;
            if x > LEFT && x + width > WIDTH - 8.0 {
                (x, row) = (LEFT, row + 1);
            }
            keys.push(Key { name, look: series.look, x, row });
            x += width + 14.0;
        }
        let rows = if keys.is_empty() { 0 } else { row + 1 };
        Legend { keys, rows }
    }
}

fn draw(look: &Look, points: &[(f64, f64)], marked: bool) -> Vec<Plot> {
    let mut plots = vec![line(look, points)];
    // An upright line is an interval around a point that has its marker.
    let is_interval = matches!(points, [from, to] if from.0 == to.0);
    if marked && !is_interval || points.len() == 1 {
        plots.push(markers(look, points));
    }
    plots
}

fn line(look: &Look, points: &[(f64, f64)]) -> Plot {
    let style = if look.dash.is_empty() { LineStyle::Solid } else { LineStyle::Custom(look.dash.to_owned()) };
    let plot = LinePlot::new().with_data(points.iter().copied()).with_color(format!("var({})", look.colour));
    Plot::Line(plot.with_stroke_width(2.0).with_line_style(style))
}

fn markers(look: &Look, points: &[(f64, f64)]) -> Plot {
    let shape = match look.marker {
        Marker::Circle => MarkerShape::Circle,
        Marker::Square => MarkerShape::Square,
        Marker::Triangle => MarkerShape::Triangle,
        Marker::Diamond => MarkerShape::Diamond,
        Marker::TriangleDown => MarkerShape::TriangleDown,
        Marker::Star => MarkerShape::Star,
        Marker::Hexagon => MarkerShape::Hexagon,
        Marker::Cross => MarkerShape::Cross,
    };
    let plot = ScatterPlot::new().with_data(points.iter().copied()).with_color(format!("var({})", look.colour));
    Plot::Scatter(plot.with_marker(shape).with_size(MARKER_SIZE))
}

fn text(scene: &mut Scene, x: f64, y: f64, content: &str) {
    scene.add(Primitive::Text {
        x,
        y,
        content: plain(content),
        size: TEXT_SIZE,
        anchor: TextAnchor::Start,
        rotate: None,
        bold: false,
        color: None,
    });
}

/// The library reads `$...$` as mathematics and `\$` as a dollar.
fn plain(text: &str) -> String {
    text.replace('$', "\\$")
}

/// Text as it stands in XML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
