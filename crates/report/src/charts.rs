//! Line charts as inline SVG: the only file that knows the chart library.
//!
//! kuva draws axes, grid, ticks, lines and markers. Added to it here: colours that follow the page's light or dark scheme, a
//! legend whose keys are drawn like the lines, and what a screen reader says. Its clip paths are taken out: nothing that is
//! drawn leaves the axes, and their ids come from a counter, so that the same report would not be the same bytes twice.
//!
//! In a page each series is a group of its own, which the page's style hides or emphasises; its legend is the page's.

use std::sync::Arc;

use kuva::backend::svg::SvgBackend;
use kuva::plot::line::LineStyle;
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{LinePlot, ScatterPlot};
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{Primitive, Scene, TextAnchor, render_multiple};
use kuva::render::theme::Theme;
use serde::Serialize;

use super::look::{self, Look, Marker};

/// From line to line of a label that takes several.
const LINE: f64 = 17.0;
/// Width of a chart; its page scales it.
const WIDTH: f64 = 640.0;
/// Width of a chart for a narrow screen, on which its text stays as large as the page's.
const NARROW: f64 = 340.0;
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

/// A series of a page's legend, drawn by the page.
#[derive(Clone, Debug, Serialize)]
pub struct LegendKey {
    /// Its name.
    pub name: String,
    /// The CSS variable of its colour.
    pub colour: &'static str,
    /// Its SVG dash pattern.
    pub dash: &'static str,
    /// Whether it is drawn as a line.
    pub line: bool,
    /// The SVG path of its marker around (14, 5); empty if it has none.
    pub marker: &'static str,
    /// Whether it is grey, one of many.
    pub other: bool,
}

/// A place on the horizontal axis that is to be seen.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'a> {
    /// Where it is.
    pub x: f64,
    /// What stands at it.
    pub text: &'a str,
}

impl Chart {
    /// The chart as an `svg` element that takes its colours from the page's [`look::css`]; its legend is [`legend`](Self::legend).
    pub fn inline(&self) -> String {
        self.in_page(WIDTH, None, &[])
    }

    /// The same for a narrow screen, with an id of its own.
    pub fn inline_narrow(&self, mark: Option<Mark>) -> String {
        self.narrow(mark, &[])
    }

    /// The same with a mark.
    pub fn inline_marked(&self, mark: Option<Mark>) -> String {
        self.in_page(WIDTH, mark, &[])
    }

    /// The chart for a wide and for a narrow screen, with a mark, where each series tells what `told` has at its place when it is pointed at.
    pub fn inline_told(&self, mark: Option<Mark>, told: &[String]) -> (String, String) {
        (self.in_page(WIDTH, mark, told), self.narrow(mark, told))
    }

    fn narrow(&self, mark: Option<Mark>, told: &[String]) -> String {
        // Names at the vertical axis take their room.
        let width = NARROW.max(self.left() + 220.0).min(WIDTH - 1.0);
        Chart { id: format!("{}-narrow", self.id), ..self.clone() }.in_page(width, mark, told)
    }

    fn in_page(&self, width: f64, mark: Option<Mark>, told: &[String]) -> String {
        let (height, body) = self.body(&Manner { width, in_page: true, mark, told });
        format!("{}{body}", head(&self.id, &self.title, &self.description, (width, height), ""))
    }

    /// The chart as a file of its own, in light and in dark.
    pub fn standalone(&self) -> String {
        let (height, body) = self.body(&Manner::of_file());
        standalone(&self.id, &self.title, &self.description, (WIDTH, height), &body)
    }

    /// The names of the series, each once: those in colour first. The page's n-th switch is that of the class `sn`.
    pub fn legend(&self) -> Vec<LegendKey> {
        let mut keys: Vec<LegendKey> = Vec::new();
        for series in &self.series {
            if keys.iter().all(|key| key.name != series.name) {
                let Look { colour, dash, marker } = series.look;
                let other = colour == look::OTHER.colour;
                let line = self.series.iter().any(|of| of.name == series.name && of.points.len() > 1);
                // A point by itself has its marker in every chart.
                let marker = if (self.markers || !line) && !other { marker.path() } else { "" };
                keys.push(LegendKey { name: series.name.clone(), colour, dash, line, marker, other });
            }
        }
        // What is recommended, which has the first colour, comes first.
        keys.sort_by_key(|key| (key.other, key.colour != look::FIRST));
        keys
    }

    /// Height, and everything within the `svg` element, its end included.
    fn body(&self, manner: &Manner) -> (f64, String) {
        let legend = if manner.in_page { Legend { keys: Vec::new(), rows: 0 } } else { Legend::new(&self.series) };
        let (up, across) = (wrapped(&self.y.label, manner.width), wrapped(&self.x.label, manner.width));
        let more = |lines: &[String]| LINE * (lines.len() - 1) as f64;
        let top = 36.0 + f64::from(legend.rows) * LEGEND_ROW + more(&up);
        let below = BELOW + more(&across);
        let height = top + self.plot_height() + below;
        let frame = Frame { left: self.left(), top, width: manner.width, chart: self };
        // The label of the horizontal axis is below its middle, or where that has too little room below all of the chart.
        let half = LETTER * self.x.label.chars().count() as f64 / 2.0;
        let is_below =
            half <= ((frame.left + manner.width - RIGHT) / 2.0).min((manner.width + RIGHT - frame.left) / 2.0);
        let mut plots = Vec::new();
        // What is grey lies below what is not.
        let mut order: Vec<usize> = (0..self.series.len()).collect();
        order.sort_by_key(|&at| self.series[at].look.colour != look::OTHER.colour);
        for &at in &order {
            let Series { look, points, .. } = &self.series[at];
            let colour = if manner.in_page { place_of_colour(at) } else { format!("var({})", look.colour) };
            plots.extend(draw(look, &colour, points, self.markers && look.colour != look::OTHER.colour));
        }
        for key in &legend.keys {
            let (middle, y) = (key.x + 15.0, 38.0 + f64::from(key.row) * LEGEND_ROW);
            let ends = [(key.x, y), (middle, y), (key.x + 30.0, y)].map(|(x, y)| frame.data(x, y));
            let colour = format!("var({})", key.look.colour);
            plots.push(line(&key.look, &colour, &ends));
            if self.markers {
                plots.push(markers(&key.look, &colour, &ends[1..2]));
            }
        }
        if let Some(mark) = &manner.mark {
            let ends = [(mark.x, self.y.min), (mark.x, self.y.max)];
            plots.push(line(&look::MARK, &format!("var({})", look::MARK.colour), &ends));
        }
        let mut scene = render_multiple(plots, self.layout(&frame, (height, below), is_below));
        scene.elements.retain(|element| !matches!(element, Primitive::ClipStart { .. } | Primitive::ClipEnd));
        scene.defs.clear();
        for (at, line) in up.iter().enumerate() {
            text(&mut scene, 8.0, 18.0 + LINE * at as f64, line);
        }
        for (at, line) in across.iter().enumerate().filter(|_| !is_below) {
            let y = height - 8.0 - LINE * (across.len() - 1 - at) as f64;
            label(&mut scene, (manner.width / 2.0, y), TextAnchor::Middle, false, line);
        }
        for key in &legend.keys {
            text(&mut scene, key.x + 36.0, 42.5 + f64::from(key.row) * LEGEND_ROW, &key.name);
        }
        if let Some(mark) = &manner.mark {
            let x = frame.screen_x(mark.x);
            // On the side where there is more room.
            let (x, anchor) =
                if x > manner.width / 2.0 { (x - 6.0, TextAnchor::End) } else { (x + 6.0, TextAnchor::Start) };
            label(&mut scene, (x, frame.top + 14.0), anchor, true, mark.text);
        }
        let svg = SvgBackend::new().render_scene(&scene);
        // What comes before is the library's own opening tag and its name.
        let body = svg.split_once("-->").map_or(svg.as_str(), |(_, body)| body);
        (height, if manner.in_page { self.grouped(body, manner.told) } else { body.to_owned() })
    }

    /// The drawing with the elements of each series in a group, which has the class of its switch, its colour and what it tells.
    fn grouped(&self, body: &str, told: &[String]) -> String {
        let legend = self.legend();
        let mut drawing = body.to_owned();
        for (at, series) in self.series.iter().enumerate() {
            let place = place_of_colour(at);
            let (Some(first), Some(last)) = (drawing.find(&place), drawing.rfind(&place)) else { continue };
            let start = drawing[..first].rfind('<').unwrap_or(first);
            let end = drawing[last..].find('>').map_or(drawing.len(), |end| last + end + 1);
            let number = 1 + legend.iter().position(|key| key.name == series.name).unwrap_or(0);
            let kind = if series.look.colour == look::OTHER.colour { " other" } else { "" };
            let group = format!(
                "<g class=\"s s{number}{kind}\" style=\"--c:var({})\"><title>{}</title>{}</g>",
                series.look.colour,
                escape(&told.get(at).map_or_else(|| self.told(series), String::clone)),
                drawing[start..end].replace(&place, "var(--c)")
            );
            drawing.replace_range(start..end, &group);
        }
        drawing
    }

    /// What is told of a series that is pointed at: its name, and its values if they are few.
    fn told(&self, series: &Series) -> String {
        if series.points.len() > TOLD_POINTS_MAX || !self.markers {
            return series.name.clone();
        }
        let decimals = usize::try_from(2 - self.y.step.log10().floor() as i64).unwrap_or(0).min(6);
        let values = series.points.iter().map(|point| super::numbers::shortest(point.1, decimals));
        format!("{}: {}", series.name, values.collect::<Vec<_>>().join(", "))
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

    fn layout(&self, frame: &Frame, (height, below): (f64, f64), labelled: bool) -> Layout {
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
            .with_width(frame.width)
            .with_height(height)
            .with_force_margins(frame.left, RIGHT)
            .with_force_margins_y(frame.top, below)
            .with_x_axis_min(x.min)
            .with_x_axis_max(x.max)
            .with_y_axis_min(y.min)
            .with_y_axis_max(y.max)
            .with_x_tick_step(frame.x_step())
            .with_y_tick_step(y.step)
            .with_x_tick_format(TickFormat::Custom(Arc::clone(&x.tick)))
            .with_y_tick_format(TickFormat::Custom(Arc::clone(&y.tick)))
            .with_x_label(if labelled { &x.label } else { "" })
            .with_tick_size(TEXT_SIZE)
            .with_label_size(TEXT_SIZE)
    }
}

/// Charts as one file, in rows, in light and in dark.
pub fn side_by_side(id: &str, title: &str, description: &str, columns: usize, charts: &[Chart]) -> String {
    let (mut all, mut y) = (String::new(), 0.0);
    for row in charts.chunks(columns) {
        let bodies: Vec<_> = row.iter().map(|chart| chart.body(&Manner::of_file())).collect();
        let row_height = bodies.iter().map(|&(height, _)| height).fold(0.0, f64::max);
        for (column, (height, body)) in bodies.into_iter().enumerate() {
            let x = WIDTH * column as f64;
            all += &format!("<svg x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\">{body}");
        }
        y += row_height;
    }
    let width = WIDTH * columns.min(charts.len()) as f64;
    standalone(id, title, description, (width, y), &format!("{all}</svg>"))
}

/// A picture as a file of its own; `body` ends the `svg` element.
pub(super) fn standalone(id: &str, title: &str, description: &str, (width, height): (f64, f64), body: &str) -> String {
    let style = look::css(":root");
    format!(
        "{}<style>{style}svg{{color:var(--fw-ink);font-family:system-ui,sans-serif}}</style>\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--fw-page)\" />{body}\n",
        head(id, title, description, (width, height), &format!(" width=\"{width}\" height=\"{height}\"")),
    )
}

/// The beginning of a picture, with what a screen reader says of it.
pub(super) fn head(id: &str, title: &str, description: &str, (width, height): (f64, f64), size: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\"{size} role=\"img\" \
         aria-labelledby=\"{id}-title {id}-desc\" fill=\"currentColor\">\
         <title id=\"{id}-title\">{}</title><desc id=\"{id}-desc\">{}</desc>",
        escape(title),
        escape(description),
    )
}

/// How a chart is drawn: wide or narrow, in a page or as a file, whose legend is in the drawing.
struct Manner<'a> {
    width: f64,
    in_page: bool,
    mark: Option<Mark<'a>>,
    told: &'a [String],
}

impl Manner<'_> {
    fn of_file() -> Self {
        Manner { width: WIDTH, in_page: false, mark: None, told: &[] }
    }
}

/// More values are not told of a series that is pointed at.
const TOLD_POINTS_MAX: usize = 12;

/// Stands for the colour of the series at this place until its group has it.
fn place_of_colour(at: usize) -> String {
    format!("var(--place-{at})")
}

/// Where the axes lie, to place the legend's keys in the data's coordinates, in which the library draws.
struct Frame<'a> {
    left: f64,
    top: f64,
    width: f64,
    chart: &'a Chart,
}

impl Frame<'_> {
    /// From tick to tick of the horizontal axis: on a narrow chart so far apart that their texts do not touch.
    fn x_step(&self) -> f64 {
        let Axis { min, max, step, tick, .. } = &self.chart.x;
        if self.width >= WIDTH {
            return *step;
        }
        let texts = ((min / step).ceil() as i64..=(max / step).floor() as i64).map(|at| tick(at as f64 * step));
        let widest = texts.map(|text| text.chars().count()).max().unwrap_or(0) as f64 * LETTER + 12.0;
        let room = step / (max - min) * (self.width - self.left - RIGHT);
        step * (widest / room).ceil().max(1.0)
    }

    fn screen_x(&self, x: f64) -> f64 {
        let across = &self.chart.x;
        self.left + (x - across.min) / (across.max - across.min) * (self.width - self.left - RIGHT)
    }

    fn data(&self, x: f64, y: f64) -> (f64, f64) {
        let Chart { x: across, y: up, .. } = self.chart;
        let right_of_axis = (x - self.left) / (self.width - self.left - RIGHT);
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

fn draw(look: &Look, colour: &str, points: &[(f64, f64)], marked: bool) -> Vec<Plot> {
    let mut plots = vec![line(look, colour, points)];
    // An upright line is an interval around a point that has its marker.
    let is_interval = matches!(points, [from, to] if from.0 == to.0);
    if marked && !is_interval || points.len() == 1 {
        plots.push(markers(look, colour, points));
    }
    plots
}

fn line(look: &Look, colour: &str, points: &[(f64, f64)]) -> Plot {
    let style = if look.dash.is_empty() { LineStyle::Solid } else { LineStyle::Custom(look.dash.to_owned()) };
    let plot = LinePlot::new().with_data(points.iter().copied()).with_color(colour.to_owned());
    let width = if look.colour == look::OTHER.colour { 1.2 } else { 2.0 };
    Plot::Line(plot.with_stroke_width(width).with_line_style(style))
}

fn markers(look: &Look, colour: &str, points: &[(f64, f64)]) -> Plot {
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
    let plot = ScatterPlot::new().with_data(points.iter().copied()).with_color(colour.to_owned());
    Plot::Scatter(plot.with_marker(shape).with_size(MARKER_SIZE))
}

/// A label in as many lines as it needs in a chart of this width.
fn wrapped(label: &str, width: f64) -> Vec<String> {
    let letters_max = ((width - 16.0) / LETTER) as usize;
    let mut lines = vec![String::new()];
    for word in label.split(' ') {
        let line = lines.last_mut().map(|line| (line.chars().count() + 1 + word.chars().count() > letters_max, line));
        match line {
            Some((false, line)) if !line.is_empty() => *line += &format!(" {word}"),
            Some((_, line)) if line.is_empty() => word.clone_into(line),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn text(scene: &mut Scene, x: f64, y: f64, content: &str) {
    label(scene, (x, y), TextAnchor::Start, false, content);
}

fn label(scene: &mut Scene, (x, y): (f64, f64), anchor: TextAnchor, bold: bool, content: &str) {
    let (content, size) = (plain(content), TEXT_SIZE);
    scene.add(Primitive::Text { x, y, content, size, anchor, rotate: None, bold, color: None });
}

/// The library reads `$...$` as mathematics and `\$` as a dollar.
fn plain(text: &str) -> String {
    text.replace('$', "\\$")
}

/// Text of a picture that is drawn by hand, at its `anchor`: start, middle or end.
pub(super) fn text_at(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x}\" y=\"{y}\" font-size=\"{TEXT_SIZE}\" text-anchor=\"{anchor}\">{}</text>", escape(text))
}

/// Text as it stands in XML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
