//! Line charts as inline SVG: axes, grid, ticks, lines, markers and a legend, in colours that follow the page's light
//! or dark scheme.
//!
//! Each series is a group with its colour. In a page the group has a title, and a class by which the page's style hides
//! or emphasises it. The page has the legend.

use std::fmt::{self, Display, Write};
use std::sync::Arc;

use serde::Serialize;

use crate::draw::labels::{self, Label};
use crate::draw::look::{self, Look};

/// Line height of a wrapped label.
const LINE: f64 = 17.0;
/// Width of a chart, which its page scales.
const WIDTH: f64 = 640.0;
/// Width of a chart for a narrow screen, where text stays as large as the page's.
const NARROW: f64 = 340.0;
/// Height between the axes, unless the ticks need more.
const PLOT_HEIGHT: f64 = 264.0;
/// Height per tick of the vertical axis.
const TICK_HEIGHT: f64 = 20.0;
/// Space for the labels below the horizontal axis.
const BELOW: f64 = 50.0;
/// Space for half a tick label on the right.
const RIGHT: f64 = 40.0;
/// Mean width of a letter, an estimate because the reader's font is unknown.
const LETTER: f64 = 7.4;
const TEXT_SIZE: u32 = 13;
/// Distance from the middle of a tick's text to its base line.
const TEXT_MIDDLE: f64 = 4.74;
/// Length of the line of a tick.
const TICK: f64 = 5.0;
/// Height of a row of the legend.
const LEGEND_ROW: f64 = 22.0;
/// Width of a key of the legend, with the space that follows it.
const KEY: f64 = 42.0;
/// Letters of a legend entry; longer ones are cut off.
const LEGEND_LETTERS_MAX: usize = 72;

/// Formats a value of an axis at its tick.
pub type TickText = Arc<dyn Fn(f64) -> String + Send + Sync>;

/// An axis.
#[derive(Clone)]
pub struct Axis {
    /// Its label, with the unit.
    pub label: String,
    /// Start.
    pub min: f64,
    /// End; larger than `min`.
    pub max: f64,
    /// Distance between ticks, which are at multiples of it.
    pub step: f64,
    /// Formats a tick.
    pub tick: TickText,
}

impl Axis {
    /// The multiples of `step` on the axis.
    fn ticks(&self, step: f64) -> impl Iterator<Item = f64> {
        // Tolerates rounding errors at the ends.
        let (first, last) = ((self.min / step - 1e-9).ceil() as i64, (self.max / step + 1e-9).floor() as i64);
        (first..=last).map(move |tick| tick as f64 * step)
    }
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
    /// Its id in the page: letters, digits and hyphens.
    pub id: String,
    /// Title for screen readers.
    pub title: String,
    /// Description for screen readers.
    pub description: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines, the first at the bottom.
    pub series: Vec<Series>,
    /// True if each point has a marker.
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
    /// True if it is drawn as a line.
    pub line: bool,
    /// The SVG path of its marker around (14, 5); empty if it has none.
    pub marker: &'static str,
    /// True if it is grey, one of many.
    pub other: bool,
    /// The class that its series has in every chart.
    pub class: String,
}

/// Returns the class of the series of this name, the same in every chart of a page.
pub fn class_of(name: &str) -> String {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("n{:x}", hash >> 32)
}

/// A marked position on the horizontal axis.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'a> {
    /// Position.
    pub x: f64,
    /// Text at the mark.
    pub text: &'a str,
}

impl Chart {
    /// Returns the chart for wide and narrow screens, with a mark, as `svg` elements with the colours of the page's
    /// [`look::css`]. When pointed at, each series shows its entry of `told`. Its legend is [`legend`](Self::legend).
    pub fn inline_told(&self, mark: Option<Mark>, told: &[String]) -> (String, String) {
        let words = ChartWords { mark, told, names: None };
        (self.in_page(WIDTH, &words), self.narrow(&words))
    }

    /// Returns the chart for wide and narrow screens, with a name at each single point; that of `bold` is bold.
    pub fn inline_named(&self, bold: &str) -> (String, String) {
        let words = ChartWords { names: Some(bold), ..ChartWords::default() };
        (self.in_page(WIDTH, &words), self.narrow(&words))
    }

    fn narrow(&self, words: &ChartWords) -> String {
        // Names at the vertical axis need space.
        let width = NARROW.max(self.left() + 220.0).min(WIDTH - 1.0);
        Chart { id: format!("{}-narrow", self.id), ..self.clone() }.in_page(width, words)
    }

    fn in_page(&self, width: f64, words: &ChartWords) -> String {
        let (height, body) = self.body(&Manner { width, in_page: true, words });
        format!("{}{body}", head(&self.id, &self.title, &self.description, (width, height), ""))
    }

    /// Returns the chart as a file, in light and dark.
    pub fn standalone(&self) -> String {
        let (height, body) = self.body(&Manner { width: WIDTH, in_page: false, words: &ChartWords::default() });
        standalone(&self.id, &self.title, &self.description, (WIDTH, height), &body)
    }

    /// Returns the names of the series without duplicates, coloured ones first. The page's n-th switch is for the class
    /// `sn`.
    pub fn legend(&self) -> Vec<LegendKey> {
        let mut keys: Vec<LegendKey> = Vec::new();
        for series in &self.series {
            if keys.iter().all(|key| key.name != series.name) {
                let Look { colour, dash, marker } = series.look;
                let other = colour == look::OTHER.colour;
                let line = self.series.iter().any(|of| of.name == series.name && of.points.len() > 1);
                // A single point has its marker in every chart.
                let marker = if !line || self.markers && !other { marker.path() } else { "" };
                let class = class_of(&series.name);
                keys.push(LegendKey { name: series.name.clone(), colour, dash, line, marker, other, class });
            }
        }
        // The recommended series, which has the first colour, comes first.
        keys.sort_by_key(|key| (key.other, key.colour != look::FIRST));
        keys
    }

    /// Returns the height, and the contents of the `svg` element with its end tag.
    fn body(&self, manner: &Manner) -> (f64, String) {
        let legend = if manner.in_page { Legend { keys: Vec::new(), rows: 0 } } else { Legend::new(&self.series) };
        let (up, across) = (wrapped(&self.y.label, manner.width), wrapped(&self.x.label, manner.width));
        let more = |lines: &[String]| LINE * (lines.len() - 1) as f64;
        let top = 36.0 + f64::from(legend.rows) * LEGEND_ROW + more(&up);
        let height = top + self.plot_height() + BELOW + more(&across);
        let frame = Frame { left: self.left(), top, width: manner.width, chart: self };
        let mut drawing = frame.axes();
        // Grey series are below the others.
        let mut order: Vec<usize> = (0..self.series.len()).collect();
        order.sort_by_key(|&at| self.series[at].look.colour != look::OTHER.colour);
        let names = self.legend();
        let labels = self.labels(&frame, manner);
        for at in order {
            drawing += &self.drawn(at, &frame, manner, &names, labels[at]);
        }
        for key in &legend.keys {
            drawing += &key.drawn(self.markers);
        }
        if let Some(mark) = &manner.words.mark {
            drawing += &frame.mark(mark);
        }
        for (at, line) in up.iter().enumerate() {
            drawing += &text_at(8.0, 18.0 + LINE * at as f64, "start", line);
        }
        // The label of the horizontal axis is centred below it, or below the whole chart if it is too wide.
        let (middle, half) = ((frame.left + frame.right()) / 2.0, LETTER * self.x.label.chars().count() as f64 / 2.0);
        if half <= middle.min(manner.width - middle) {
            drawing += &text_at(middle, height - 6.5, "middle", &self.x.label);
        } else {
            for (at, line) in across.iter().enumerate() {
                let y = height - 8.0 - LINE * (across.len() - 1 - at) as f64;
                drawing += &text_at(manner.width / 2.0, y, "middle", line);
            }
        }
        (height, drawing + "</svg>")
    }

    /// Draws the group of a series; in a page with the class of its switch, and with its title.
    fn drawn(&self, at: usize, frame: &Frame, manner: &Manner, names: &[LegendKey], label: Option<Label>) -> String {
        let Series { name, look, points } = &self.series[at];
        let is_other = look.colour == look::OTHER.colour;
        let mut group = String::from("<g");
        if manner.in_page {
            let number = 1 + names.iter().position(|key| key.name == *name).unwrap_or(0);
            let _ = write!(group, " class=\"s s{number} {}{}\"", class_of(name), if is_other { " other" } else { "" });
        }
        let _ = write!(group, " style=\"--c:var({})\">", look.colour);
        if manner.in_page {
            let title = manner.words.told.get(at).map_or_else(|| self.told(&self.series[at]), String::clone);
            let _ = write!(group, "<title>{}</title>", escape(&title));
        }
        let places: Vec<_> = points.iter().map(|&(x, y)| (frame.screen_x(x), frame.screen_y(y))).collect();
        group += &line(look, GROUP, &places);
        // A vertical line is an interval around a point that has its own marker.
        let is_interval = matches!(points[..], [from, to] if from.0 == to.0);
        if self.markers && !is_other && !is_interval || points.len() == 1 {
            group += &markers(look, &places);
        }
        if let (Some(label), Some(point)) = (label, places.last()) {
            group += &named(name, label, *point, manner.words.names);
        }
        group + "</g>"
    }

    /// Places names at single points, or at the ends of grey lines, which have no other sign on paper.
    fn labels(&self, frame: &Frame, manner: &Manner) -> Vec<Option<Label>> {
        let mut labels = vec![None; self.series.len()];
        if !manner.in_page {
            return labels;
        }
        let is_named = |series: &Series| match manner.words.names {
            Some(_) => series.points.len() == 1,
            None => series.look.colour == look::OTHER.colour && series.points.len() > 1,
        };
        let mut named: Vec<usize> = (0..self.series.len()).filter(|&at| is_named(&self.series[at])).collect();
        named.sort_by_key(|&at| {
            let series = &self.series[at];
            (manner.words.names != Some(&series.name), series.look.colour == look::OTHER.colour)
        });
        let end = |&at: &usize| {
            let &(x, y) = self.series[at].points.last()?;
            Some((frame.screen_x(x), frame.screen_y(y)))
        };
        let points: Vec<(f64, f64)> = named.iter().filter_map(end).collect();
        let names: Vec<&str> = named.iter().map(|&at| &self.series[at].name[..]).collect();
        let area = [frame.left + 2.0, frame.top - 10.0, manner.width - 2.0, frame.bottom() - 2.0];
        for (at, label) in named.into_iter().zip(labels::place(&points, &names, area)) {
            labels[at] = label;
        }
        labels
    }

    /// Returns the title of a series: its name, and its values if they are few.
    fn told(&self, series: &Series) -> String {
        if series.points.len() > TOLD_POINTS_MAX || !self.markers {
            return series.name.clone();
        }
        let values = series.points.iter().map(|point| crate::numbers::number(point.1));
        format!("{}: {}", series.name, values.collect::<Vec<_>>().join(", "))
    }

    fn plot_height(&self) -> f64 {
        PLOT_HEIGHT.max(TICK_HEIGHT * (self.y.max - self.y.min) / self.y.step)
    }

    /// Space for the tick labels of the vertical axis.
    fn left(&self) -> f64 {
        let widest = self.y.ticks(self.y.step).map(|at| (self.y.tick)(at).chars().count()).max();
        // Letters of names are wider than digits.
        let letter = if widest > Some(12) { 1.12 * LETTER } else { LETTER };
        (22.0 + letter * widest.unwrap_or(0) as f64).max(48.0)
    }
}

/// Returns charts as one file, in rows, in light and dark.
pub fn side_by_side(id: &str, title: &str, description: &str, columns: usize, charts: &[Chart]) -> String {
    let (mut all, mut y) = (String::new(), 0.0);
    let manner = Manner { width: WIDTH, in_page: false, words: &ChartWords::default() };
    for row in charts.chunks(columns) {
        let bodies: Vec<_> = row.iter().map(|chart| chart.body(&manner)).collect();
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

/// Returns a picture as a file; `body` ends the `svg` element.
pub(crate) fn standalone(id: &str, title: &str, description: &str, (width, height): (f64, f64), body: &str) -> String {
    let style = look::css(":root");
    format!(
        "{}<style>{style}svg{{color:var(--fw-ink);font-family:system-ui,sans-serif}}</style>\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--fw-page)\" />{body}\n",
        head(id, title, description, (width, height), &format!(" width=\"{width}\" height=\"{height}\"")),
    )
}

/// Returns the start of a picture, with its description for screen readers.
pub(crate) fn head(id: &str, title: &str, description: &str, (width, height): (f64, f64), size: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\"{size} role=\"img\" \
         aria-labelledby=\"{id}-title {id}-desc\" fill=\"currentColor\">\
         <title id=\"{id}-title\">{}</title><desc id=\"{id}-desc\">{}</desc>",
        escape(title),
        escape(description),
    )
}

/// Manner of drawing: wide or narrow, in a page or as a file with a legend.
struct Manner<'a> {
    width: f64,
    in_page: bool,
    words: &'a ChartWords<'a>,
}

/// Words in a chart besides its axes.
#[derive(Default)]
struct ChartWords<'a> {
    mark: Option<Mark<'a>>,
    /// Titles of the series.
    told: &'a [String],
    /// The bold name, if each single point has its name.
    names: Option<&'a str>,
}

/// Largest number of values in the title of a series.
const TOLD_POINTS_MAX: usize = 12;

/// Position of the axes.
struct Frame<'a> {
    left: f64,
    top: f64,
    width: f64,
    chart: &'a Chart,
}

impl Frame<'_> {
    /// Distance between ticks of the horizontal axis; on a narrow chart wide enough for their texts.
    fn x_step(&self) -> f64 {
        let Axis { min, max, step, tick, .. } = &self.chart.x;
        if self.width >= WIDTH {
            return *step;
        }
        let widest = self.chart.x.ticks(*step).map(|at| tick(at).chars().count()).max().unwrap_or(0);
        let widest = widest as f64 * LETTER + 12.0;
        let room = step / (max - min) * (self.right() - self.left);
        step * (widest / room).ceil().max(1.0)
    }

    /// The right end of the horizontal axis.
    fn right(&self) -> f64 {
        self.width - RIGHT
    }

    /// The lower end of the vertical axis.
    fn bottom(&self) -> f64 {
        self.top + self.chart.plot_height()
    }

    fn screen_x(&self, x: f64) -> f64 {
        let Axis { min, max, .. } = self.chart.x;
        self.left + (x - min) / (max - min) * (self.right() - self.left)
    }

    fn screen_y(&self, y: f64) -> f64 {
        let Axis { min, max, .. } = self.chart.y;
        self.bottom() - (y - min) / (max - min) * self.chart.plot_height()
    }

    /// Grid, axes and ticks.
    fn axes(&self) -> String {
        let Chart { x, y, .. } = self.chart;
        let (left, right, top, bottom) = (self.left, self.right(), self.top, self.bottom());
        let (mut grid, mut ticks, mut texts) = (String::new(), String::new(), String::new());
        for at in x.ticks(self.x_step()) {
            let place = Px(self.screen_x(at));
            if at > x.min {
                let _ = write!(grid, "M{place} {top}V{bottom}", top = Px(top), bottom = Px(bottom));
            }
            let _ = write!(ticks, "M{place} {}v{TICK}", Px(bottom));
            texts += &text_at(place.0, bottom + 17.07, "middle", &(x.tick)(at));
        }
        for at in y.ticks(y.step) {
            let place = Px(self.screen_y(at));
            if at > y.min {
                let _ = write!(grid, "M{left} {place}H{right}", left = Px(left), right = Px(right));
            }
            let _ = write!(ticks, "M{} {place}h-{TICK}", Px(left));
            texts += &text_at(left - 8.0, place.0 + TEXT_MIDDLE, "end", &(y.tick)(at));
        }
        format!(
            "<path d=\"{grid}\" stroke=\"var(--fw-grid)\" fill=\"none\" />\
             <path d=\"M{} {}V{}H{}{ticks}\" stroke=\"var(--fw-axis)\" fill=\"none\" />{texts}",
            Px(left),
            Px(top),
            Px(bottom),
            Px(right)
        )
    }

    /// Draws a mark, with its text on the side with more space.
    fn mark(&self, mark: &Mark) -> String {
        let x = self.screen_x(mark.x);
        let (text_x, anchor) = if x > self.width / 2.0 { (x - 6.0, "end") } else { (x + 6.0, "start") };
        format!(
            "{}{}",
            line(&look::MARK, look::MARK.colour, &[(x, self.bottom()), (x, self.top)]),
            bold_at(text_x, self.top + 14.0, anchor, mark.text)
        )
    }
}

struct PlacedKey {
    name: String,
    look: Look,
    x: f64,
    row: u16,
}

impl PlacedKey {
    fn drawn(&self, marked: bool) -> String {
        let y = 38.0 + f64::from(self.row) * LEGEND_ROW;
        let marker = if marked { markers(&self.look, &[(self.x + 15.0, y)]) } else { String::new() };
        format!(
            "<g style=\"--c:var({})\">{}{marker}</g>{}",
            self.look.colour,
            line(&self.look, GROUP, &[(self.x, y), (self.x + 30.0, y)]),
            text_at(self.x + 36.0, y + 4.5, "start", &self.name)
        )
    }
}

/// The legend, in as many rows as it needs.
struct Legend {
    keys: Vec<PlacedKey>,
    rows: u16,
}

impl Legend {
    fn new(all: &[Series]) -> Legend {
        const LEFT: f64 = 8.0;
        let (mut keys, mut x, mut row) = (Vec::new(), LEFT, 0);
        for (number, series) in all.iter().enumerate() {
            // The boxes of a policy are many series with one legend entry.
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
            keys.push(PlacedKey { name, look: series.look, x, row });
            x += width + 14.0;
        }
        let rows = if keys.is_empty() { 0 } else { row + 1 };
        Legend { keys, rows }
    }
}

/// The CSS variable of a group's colour.
const GROUP: &str = "--c";

/// Draws a line in the colour of a CSS variable.
fn line(look: &Look, colour: &str, places: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (number, &(x, y)) in places.iter().enumerate() {
        let _ = write!(path, "{}{} {}", if number == 0 { 'M' } else { 'L' }, Px(x), Px(y));
    }
    let width = if look.colour == look::OTHER.colour { "1.2" } else { "2" };
    let dash = if look.dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", look.dash) };
    format!("<path d=\"{path}\" stroke=\"var({colour})\" stroke-width=\"{width}\" fill=\"none\"{dash} />")
}

/// Draws a marker at each place, in the colour of its group.
fn markers(look: &Look, places: &[(f64, f64)]) -> String {
    let mut group = String::from("<g fill=\"var(--c)\" stroke=\"var(--c)\" stroke-width=\"1.2\">");
    for &(x, y) in places {
        // The path of a marker is around (14, 5).
        let (right, down) = (Px(x - 14.0), Px(y - 5.0));
        let _ = write!(group, "<path d=\"{}\" transform=\"translate({right} {down})\" />", look.marker.path());
    }
    group + "</g>"
}

/// Draws the name of a series at its label. Without `names` it is shown on paper only.
fn named(name: &str, label: Label, point: (f64, f64), names: Option<&str>) -> String {
    let class = if names.is_none() { " class=\"paper\"" } else { "" };
    let weight = if names == Some(name) { " font-weight=\"bold\"" } else { "" };
    let lead = label.lead.map_or_else(String::new, |(x, y)| {
        let [from_x, from_y, x, y] = [point.0, point.1, x, y].map(Px);
        format!("<path d=\"M{from_x} {from_y}L{x} {y}\" stroke=\"var(--fw-axis)\" stroke-width=\".7\" />")
    });
    format!("<g{class}>{lead}{}</g>", weighed_at(label.x, label.y, label.anchor, weight, name))
}

/// A coordinate, with at most two decimals.
#[derive(Clone, Copy)]
struct Px(f64);

impl Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", (100.0 * self.0).round() / 100.0)
    }
}

/// Wraps a label for a chart of this width.
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

/// Draws text at its `anchor`: start, middle or end.
pub(crate) fn text_at(x: f64, y: f64, anchor: &str, text: &str) -> String {
    weighed_at(x, y, anchor, "", text)
}

fn bold_at(x: f64, y: f64, anchor: &str, text: &str) -> String {
    weighed_at(x, y, anchor, " font-weight=\"bold\"", text)
}

fn weighed_at(x: f64, y: f64, anchor: &str, weight: &str, text: &str) -> String {
    let (x, y, text) = (Px(x), Px(y), escape(text));
    format!("<text x=\"{x}\" y=\"{y}\" font-size=\"{TEXT_SIZE}\" text-anchor=\"{anchor}\"{weight}>{text}</text>")
}

/// Escapes text for XML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
