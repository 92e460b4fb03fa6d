//! Looks of series: colours, dashes and markers, in light and dark.
//!
//! Series differ from their neighbours by colour, dash and marker. Colours have a contrast of at least 3:1 to the page
//! (WCAG 2.2, 1.4.11), text 4.5:1 (1.4.3); tests below compute both.

/// Shape of a marker.
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

impl Marker {
    /// Returns the marker around (14, 5) as an SVG path, as large as in a chart, including its outline.
    pub fn path(self) -> &'static str {
        match self {
            Marker::Circle => "M10 5a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
            Marker::Square => "M10.4 1.4h7.2v7.2h-7.2z",
            Marker::Triangle => "M14 1L18 8.6H10z",
            Marker::Diamond => "M14 .8L18.2 5L14 9.2L9.8 5z",
            Marker::TriangleDown => "M14 9L18 1.4H10z",
            Marker::Star => "M14 .6L15.1 3.5L18.2 3.6L15.8 5.6L16.6 8.6L14 6.9L11.4 8.6L12.2 5.6L9.8 3.6L12.9 3.5z",
            Marker::Hexagon => "M18 5L16 8.5H12L10 5L12 1.5H16z",
            Marker::Cross => "M10.8 1.8L17.2 8.2M10.8 8.2L17.2 1.8",
        }
    }
}

/// Look of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Name of the CSS variable that holds its colour.
    pub colour: &'static str,
    /// SVG dash pattern; empty is a solid line.
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
    ("--fw-other", "#8b929b", "#6b747f"),
    ("--fw-pointed", "#b4006e", "#ff86c8"),
    ("--fw-read", "#1f5f8b", "#86c5f0"),
    ("--fw-write", "#a4460f", "#f7ad77"),
];

/// The looks of policies, in turn. After the last colour, dashes and markers shift against the colours.
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

/// MIN, the bound, with a look of its own.
const BOUND: Look = Look { colour: "--fw-bound", dash: "2 4", marker: Marker::Cross };
/// A series without colour.
pub const OTHER: Look = Look { colour: "--fw-other", dash: "", marker: Marker::Circle };
/// A marked position.
pub const MARK: Look = Look { colour: "--fw-ink", dash: "3 3", marker: Marker::Cross };
/// Largest number of coloured series.
const COLOURED_MAX: usize = 4;
/// The colour of the recommended series, unless it has its own.
pub const FIRST: &str = LOOKS[0].colour;
/// Fixed looks; a recommended policy without one has the look before them.
const KNOWN: [(&str, Look); 3] = [("lru", LOOKS[1]), ("larc", LOOKS[2]), ("min", BOUND)];

/// Reads, in charts of reads and writes.
pub const READS: Look = Look { colour: "--fw-read", dash: "", marker: Marker::Circle };
/// Writes, in charts of reads and writes.
pub const WRITES: Look = Look { colour: "--fw-write", dash: "9 3", marker: Marker::Square };

/// The looks of the policies of a report: each has the same in all charts.
#[derive(Debug)]
pub struct Looks(Vec<(String, Look)>);

impl Looks {
    /// Gives policies looks in the order of their names; repeated names change nothing.
    pub fn new<'a>(policies: impl IntoIterator<Item = &'a str>) -> Looks {
        let policies: Vec<&str> = policies.into_iter().collect();
        let taken = |look: &Look| KNOWN.iter().any(|(name, known)| known == look && policies.contains(name));
        let mut looks = Vec::<(String, Look)>::new();
        let mut turn = 0;
        for &policy in &policies {
            if looks.iter().any(|(name, _)| name == policy) {
                continue;
            }
            let look = if let Some((_, look)) = KNOWN.iter().find(|(name, _)| *name == policy) {
                *look
            } else {
                while turn < LOOKS.len() && taken(&LOOKS[turn]) {
                    turn += 1;
                }
                let shifted = LOOKS[(turn + turn / LOOKS.len() * 3) % LOOKS.len()];
                turn += 1;
                Look { colour: LOOKS[(turn - 1) % LOOKS.len()].colour, ..shifted }
            };
            looks.push((policy.to_owned(), look));
        }
        Looks(looks)
    }

    /// Gives looks with few in colour: those that are `first`, LRU, LARC and MIN, then the first others up to four.
    /// LRU, LARC and MIN have the same look in every report.
    pub fn few<'a>(first: &[&str], names: impl IntoIterator<Item = &'a str>) -> Looks {
        let mut looks = Vec::<(String, Look)>::new();
        for name in names {
            if looks.iter().all(|(known, _)| known != name) {
                looks.push((name.to_owned(), OTHER));
            }
        }
        let known = |name: &str| KNOWN.iter().find(|known| known.0 == name).map(|known| known.1);
        let wanted = first.iter().copied().chain(KNOWN.map(|known| known.0));
        let wanted: Vec<String> = wanted.map(str::to_owned).chain(looks.iter().map(|(name, _)| name.clone())).collect();
        let coloured_max = COLOURED_MAX.max(first.len() + KNOWN.len());
        for (at, name) in wanted.into_iter().enumerate() {
            let coloured = looks.iter().filter(|(_, look)| *look != OTHER);
            if at >= first.len() + KNOWN.len() && coloured.clone().count() >= COLOURED_MAX
                || coloured.clone().count() >= coloured_max
            {
                break;
            }
            let taken: Vec<_> = coloured.map(|(_, look)| look.colour).collect();
            let kept = |look: &Look| looks.iter().any(|(name, _)| known(name) == Some(*look));
            let free = LOOKS.iter().find(|look| !taken.contains(&look.colour) && !kept(look));
            let look = known(&name).or(free.copied()).unwrap_or(OTHER);
            if let Some(own) = looks.iter_mut().find(|(known, look)| *known == name && *look == OTHER) {
                own.1 = look;
            }
        }
        Looks(looks)
    }

    /// Returns the look of a policy in this report.
    pub fn of(&self, policy: &str) -> Look {
        self.0.iter().find(|(name, _)| name == policy).map_or(LOOKS[0], |&(_, look)| look)
    }
}

/// Returns the CSS that sets the colours for everything below `selector`: light, dark if preferred, and light on paper.
pub fn css(selector: &str) -> String {
    let set = |of: fn(&(&str, &'static str, &'static str)) -> &'static str| {
        COLOURS.iter().map(|colour| format!("{}:{};", colour.0, of(colour))).collect::<String>()
    };
    let (light, dark) = (set(|colour| colour.1), set(|colour| colour.2));
    format!("{selector}{{{light}}}\n@media screen and (prefers-color-scheme:dark){{{selector}{{{dark}}}}}\n")
}

/// Largest number of series with a switch in the legend of a figure; further ones are always shown.
const SWITCHES: usize = 64;

/// Returns the CSS for a legend's switches, which need no script. A switch that is off hides its series; pointing at
/// one brings its series to the front. `classes` are those of the policies, whose legend is that of a whole section.
pub fn switches(classes: &[String]) -> String {
    let off =
        |number| format!("figure:has(.legend li:nth-child({number}) input:not(:checked)) .s{number}{{display:none}}");
    let of_section = |class: &String| {
        let off = |mode| {
            format!(
                "section:has(>.policies .mode-{mode}:checked):has(>.policies .of-{mode} .k{class} input:not(:checked)) \
                 .{class}"
            )
        };
        format!("{},{}{{display:none}}", off("all"), off("none"))
    };
    let off: String = (1..=SWITCHES).map(off).chain(classes.iter().map(of_section)).collect();
    let pointed = |number| format!("figure:has(.legend li:nth-child({number}):hover) .s{number}");
    let pointed_of_section = |class: &String| format!("section:has(>.policies .k{class}:hover) .{class}");
    let pointed = (1..=SWITCHES).map(pointed).chain(classes.iter().map(pointed_of_section));
    let pointed: Vec<_> = pointed.chain([".s:hover".to_owned()]).collect();
    let lines = pointed.iter().map(|group| format!("{group}>path[fill=none]")).collect::<Vec<_>>();
    let grey = pointed.iter().map(|group| format!("{group}.other")).collect::<Vec<_>>();
    format!("{off}\n{}{{stroke-width:3.5}}\n{}{{--c:var(--fw-pointed)!important}}\n", lines.join(","), grey.join(","))
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
            for look in LOOKS.iter().chain([&BOUND, &READS, &WRITES, &OTHER, &MARK]) {
                let found = contrast(colour(look.colour, dark), colour("--fw-page", dark));
                assert!(found >= 3.0, "{}, dark {dark}: {found:.2}", look.colour);
            }
        }
    }

    /// Machado, Oliveira, Fernandes: A physiologically-based model for simulation of color vision deficiency. 2009,
    /// severity 1: none, protanopia, deuteranopia, tritanopia.
    const DEFICIENCIES: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ];

    /// Björn Ottosson's OKLab, where equal distances look about equal; black to white is 1.
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
    fn at_most_four_are_in_colour_and_the_known_ones_always_look_alike() {
        let names = ["fifo", "lru", "mq", "arc", "larc", "min", "2q", "lru"];
        let looks = Looks::few(&["mq"], names);
        let of = |looks: &Looks| names.map(|name| looks.of(name).colour);
        let grey = OTHER.colour;
        assert_eq!(of(&looks), [grey, "--fw-2", "--fw-1", grey, "--fw-3", "--fw-bound", grey, "--fw-2"]);
        // If a known policy is recommended, there is a place for another.
        assert_eq!(
            of(&Looks::few(&["larc"], names)),
            ["--fw-1", "--fw-2", grey, grey, "--fw-3", "--fw-bound", grey, "--fw-2"]
        );
        let others = Looks::few(&[], ["a", "b", "c", "d", "e"]);
        assert_eq!(
            ["a", "b", "c", "d", "e"].map(|name| others.of(name).colour),
            ["--fw-1", "--fw-2", "--fw-3", "--fw-4", grey]
        );
        assert_eq!(others.of("a"), LOOKS[0]);
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
