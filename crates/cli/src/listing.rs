//! How the things that can be named on the command line are listed: policies and trace formats.

use std::io::{self, Write};

use flashwise_core::options::Parameter;

use crate::fit;

/// Writes a name, what it stands for and where it comes from, and what can be set.
pub fn write(mut out: impl Write, name: &str, title: &str, source: &str, parameters: &[Parameter]) -> io::Result<()> {
    let width = fit::width();
    let mut line = |indent: usize, text: &str| {
        let text = format!("{:indent$}{text}", "");
        writeln!(out, "{}", fit::sentences(&text, indent, width))
    };
    line(0, &format!("{name}  {title}"))?;
    line(4, source)?;
    for parameter in parameters {
        line(4, &format!("{}={}  {}", parameter.name, parameter.default, parameter.meaning))?;
        line(8, &parameter.kind.to_string())?;
    }
    Ok(())
}
