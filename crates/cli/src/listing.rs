//! Lists of names for the command line: policies, trace formats and devices.

use std::io::{self, Write};

use flashwise_core::options::Parameter;

use crate::fit;

/// Writes a line after `indent` spaces, wrapped to the terminal's width.
pub fn line(mut out: impl Write, indent: usize, text: &str) -> io::Result<()> {
    let text = format!("{:indent$}{text}", "");
    writeln!(out, "{}", fit::sentences(&text, indent, fit::width()))
}

/// Writes a name with its title, source and parameters.
pub fn write(mut out: impl Write, name: &str, title: &str, source: &str, parameters: &[Parameter]) -> io::Result<()> {
    let mut line = |indent: usize, text: &str| self::line(&mut out, indent, text);
    line(0, &format!("{name}  {title}"))?;
    line(4, source)?;
    for parameter in parameters {
        line(4, &format!("{}={}  {}", parameter.name, parameter.default, parameter.meaning))?;
        line(8, &parameter.kind.to_string())?;
    }
    Ok(())
}
