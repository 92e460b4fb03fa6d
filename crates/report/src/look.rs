//! How series look: colours, dashes and markers, in light and in dark.
//!
//! Every series differs from its neighbours by colour, by dash and by marker. The colours keep a contrast of 3:1 or more to the
//! page (WCAG 2.2, 1.4.11), text 4.5:1 (1.4.3); tests below compute both.

/// How a marker is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A disc.
    Circle,
    /// A square.
    Square,
    /// A triangle, point up.
    Triangle,
    /// A square on its corner.
    Diamond,
    /// A triangle, point down.
    TriangleDown,
    /// A five-pointed star.
    Star,
    /// A hexagon.
    Hexagon,
    /// A diagonal cross.
    Cross,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Name of the CSS variable that holds its colour.
    pub colour: &'static str,
    /// SVG dash pattern; empty is a whole line.
    pub dash: &'static str,
    /// Marker at each point.
    pub marker: Marker,
}

/// Colours: CSS variable, in light, in dark.
const COLOURS: &[(&str, &str, &str)] = &[
    ("--fw-page", "#ffffff", "#14171c"),
    ("--fw-panel", "#f4f6f8", "#1d2128"),
    ("--fw-ink", "#1b1f24", "#e8eaed"),
    ("--fw-muted", "#535a63", "#a9b1bb"),
    ("--fw-link", "#0a58ca", "#8ab4f8"),
    ("--fw-axis", "#6b727b", "#8b939d"),
    ("--fw-grid", "#dfe3e7", "#30363f"),
    ("--fw-1", "#112cb7", "#5086fb"),
    ("--fw-2", "#ba2e12", "#fa5526"),
    ("--fw-3", "#349e8f", "#b0f8c5"),
    ("--fw-4", "#5d2358", "#ba799a"),
    ("--fw-5", "#ad833c", "#fad657"),
    ("--fw-6", "#1a7394", "#6fdaeb"),
    ("--fw-7", "#891014", "#ea9e9d"),
    ("--fw-8", "#894ae0", "#a5a3f9"),
    ("--fw-bound", "#3d434b", "#d5d9de"),
    ("--fw-read", "#1f5f8b", "#86c5f0"),
    ("--fw-write", "#a4460f", "#f7ad77"),
];

/// The looks that policies take in turn. After the last colour the dashes and markers are shifted against the colours.
const LOOKS: [Look; 8] = [
    Look { colour: "--fw-1", dash: "", marker: Marker::Circle },
    Look { colour: "--fw-2", dash: "9 3", marker: Marker::Square },
    Look { colour: "--fw-3", dash: "3 3", marker: Marker::Triangle },
    Look { colour: "--fw-4", dash: "9 3 2 3", marker: Marker::Diamond },
    Look { colour: "--fw-5", dash: "14 4", marker: Marker::TriangleDown },
    Look { colour: "--fw-6", dash: "6 2 2 2 2 2", marker: Marker::Star },
    Look { colour: "--fw-7", dash: "5 5", marker: Marker::Hexagon },
    Look { colour: "--fw-8", dash: "14 3 3 3", marker: Marker::Circle },
];

/// MIN, the bound: apart from the policies that take a colour in turn.
const BOUND: Look = Look { colour: "--fw-bound", dash: "2 4", marker: Marker::Cross };
/// Reads, in charts of reads and writes.
pub const READS: Look = Look { colour: "--fw-read", dash: "", marker: Marker::Circle };
/// Writes, in charts of reads and writes.
pub const WRITES: Look = Look { colour: "--fw-write", dash: "9 3", marker: Marker::Square };

/// The looks of the policies of a report: each has the same in all charts.
#[derive(Debug)]
pub struct Looks(Vec<(String, Look)>);

impl Looks {
    /// Gives the policies looks in the order in which they come; names that come again change nothing.
    pub fn new<'a>(policies: impl IntoIterator<Item = &'a str>) -> Looks {
        let mut looks = Vec::<(String, Look)>::new();
        let mut turn = 0;
        for policy in policies {
            if looks.iter().any(|(name, _)| name == policy) {
                continue;
            }
            let look = if policy == "min" {
                BOUND
            } else {
                let shifted = LOOKS[(turn + turn / LOOKS.len() * 3) % LOOKS.len()];
                turn += 1;
                Look { colour: LOOKS[(turn - 1) % LOOKS.len()].colour, ..shifted }
            };
            looks.push((policy.to_owned(), look));
        }
        Looks(looks)
    }

    /// The look of a policy that was given one.
    pub fn of(&self, policy: &str) -> Look {
        self.0.iter().find(|(name, _)| name == policy).map_or(LOOKS[0], |&(_, look)| look)
    }
}

/// The CSS that sets the colours for everything below `selector`: light, dark if that is preferred, and light on paper.
pub fn css(selector: &str) -> String {
    let set = |of: fn(&(&str, &'static str, &'static str)) -> &'static str| {
        COLOURS.iter().map(|colour| format!("{}:{};", colour.0, of(colour))).collect::<String>()
    };
    let (light, dark) = (set(|colour| colour.1), set(|colour| colour.2));
    format!("{selector}{{{light}}}\n@media screen and (prefers-color-scheme:dark){{{selector}{{{dark}}}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rgb = [f64; 3];

    fn linear(hex: &str) -> Rgb {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        [channel(1), channel(3), channel(5)]
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let luminance = |hex| {
            let [r, g, b] = linear(hex);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    fn colour(name: &str, dark: bool) -> &'static str {
        let &(_, light_hex, dark_hex) = COLOURS.iter().find(|colour| colour.0 == name).unwrap();
        if dark { dark_hex } else { light_hex }
    }

    #[test]
    fn text_and_lines_stand_out_from_the_page() {
        for dark in [false, true] {
            for ground in ["--fw-page", "--fw-panel"] {
                for (name, least) in [("--fw-ink", 7.0), ("--fw-muted", 4.5), ("--fw-link", 4.5), ("--fw-axis", 3.0)] {
                    let found = contrast(colour(name, dark), colour(ground, dark));
                    assert!(found >= least, "{name} on {ground}, dark {dark}: {found:.2}");
                }
            }
            for look in LOOKS.iter().chain([&BOUND, &READS, &WRITES]) {
                let found = contrast(colour(look.colour, dark), colour("--fw-page", dark));
                assert!(found >= 3.0, "{}, dark {dark}: {found:.2}", look.colour);
            }
        }
    }

    /// Machado, Oliveira, Fernandes: A physiologically-based model for simulation of color vision deficiency. 2009, severity 1:
    /// none, protanopia, deuteranopia, tritanopia.
    const DEFICIENCIES: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ];

    /// Björn Ottosson's OKLab, in which equal distances look about equally far; black to white is 1.
    fn oklab([r, g, b]: Rgb) -> Rgb {
        let l = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b).max(0.0).cbrt();
        let m = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b).max(0.0).cbrt();
        let s = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b).max(0.0).cbrt();
        [
            0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
            1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
            0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
        ]
    }

    fn seen(hex: &str, deficiency: &[[f64; 3]; 3]) -> Rgb {
        let rgb = linear(hex);
        oklab(deficiency.map(|row| (0..3).map(|at| row[at] * rgb[at]).sum::<f64>().clamp(0.0, 1.0)))
    }

    #[test]
    fn policies_differ_by_dash_and_by_colour_for_the_colour_blind_too() {
        for dark in [false, true] {
            for (at, a) in LOOKS.iter().enumerate() {
                for b in &LOOKS[at + 1..] {
                    assert!(a.dash != b.dash, "{a:?} {b:?}");
                    for deficiency in &DEFICIENCIES {
                        let (a_seen, b_seen) =
                            (seen(colour(a.colour, dark), deficiency), seen(colour(b.colour, dark), deficiency));
                        let distance = (0..3).map(|at| (a_seen[at] - b_seen[at]).powi(2)).sum::<f64>().sqrt();
                        assert!(distance > 0.1, "{} and {}, dark {dark}: {distance:.3}", a.colour, b.colour);
                    }
                }
            }
        }
    }

    #[test]
    fn sixteen_policies_have_sixteen_looks() {
        let names: Vec<String> = (0..16).map(|number| format!("policy{number}")).collect();
        let looks = Looks::new(names.iter().map(String::as_str));
        for (at, name) in names.iter().enumerate() {
            assert!(names[at + 1..].iter().all(|other| looks.of(other) != looks.of(name)));
        }
    }
}
