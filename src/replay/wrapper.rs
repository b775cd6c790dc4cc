//! What a container's runtime puts around a line of a log, taken off again; what it cut is put together.

use serde::Deserialize;

use super::{lines::LONGEST_LINE, unreadable::Reason};

/// What a line was wrapped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wrapper {
    /// A prefix: `2025-12-31T17:37:40.493035218+01:00 stdout F `, in logs of Kubernetes.
    Cri,
    /// An object: `{"log":"…\n","stream":"stdout","time":"…"}`, in logs of Docker.
    Docker,
}

impl Wrapper {
    /// The word in JSON and for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cri => "cri",
            Self::Docker => "docker",
        }
    }
}

/// Takes wrappers off, line by line.
#[derive(Debug, Default)]
pub(super) struct Unwrapper {
    /// What was cut, of standard output and of standard error.
    cut: [Vec<u8>; 2],
    line: Vec<u8>,
}

/// What was in a wrapper.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unwrapped<'l> {
    Line(&'l [u8], Option<Wrapper>),
    /// A part of a line, which is kept until the rest comes.
    Part,
    /// All parts together are too long.
    TooLong,
}

impl Unwrapper {
    /// What stands in this line.
    pub fn unwrap<'l>(&'l mut self, line: &'l [u8]) -> Result<Unwrapped<'l>, Reason> {
        if let Some((stream, is_whole, content)) = cri(line) {
            return Ok(self.joined(stream, is_whole, content, Wrapper::Cri));
        }
        if line.starts_with(b"{\"log\":") {
            let docker: Docker = serde_json::from_slice(line).map_err(|_| Reason::Json)?;
            let content = docker.log.as_bytes();
            let content = content
                .strip_suffix(b"\n")
                .map_or((false, content), |line| {
                    (true, line.strip_suffix(b"\r").unwrap_or(line))
                });
            let stream = usize::from(docker.stream == "stderr");
            return Ok(self.joined(stream, content.0, content.1, Wrapper::Docker));
        }
        Ok(Unwrapped::Line(line, None))
    }

    /// How many lines never got their rest.
    pub fn unfinished(&self) -> usize {
        self.cut.iter().filter(|cut| !cut.is_empty()).count()
    }

    fn joined(
        &mut self,
        stream: usize,
        is_whole: bool,
        content: &[u8],
        wrapper: Wrapper,
    ) -> Unwrapped<'_> {
        let cut = &mut self.cut[stream];
        // One byte more than may be, so that it is known to be too long.
        let room = (LONGEST_LINE + 1).saturating_sub(cut.len());
        cut.extend_from_slice(&content[..content.len().min(room)]);
        if !is_whole {
            return Unwrapped::Part;
        }
        self.line.clear();
        std::mem::swap(&mut self.line, cut);
        if self.line.len() > LONGEST_LINE {
            return Unwrapped::TooLong;
        }
        Unwrapped::Line(&self.line, Some(wrapper))
    }
}

#[derive(Deserialize)]
struct Docker {
    log: String,
    #[serde(default)]
    stream: String,
}

/// Which stream, whether the line ends here, and what stands after the prefix.
fn cri(line: &[u8]) -> Option<(usize, bool, &[u8])> {
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let (stamp, stream, tag) = (words.next()?, words.next()?, words.next()?);
    let is_stamp = stamp.len() >= 20 && stamp[4] == b'-' && stamp[10] == b'T';
    let stream = match stream {
        b"stdout" => 0,
        b"stderr" => 1,
        _ => return None,
    };
    // Tags after the first are for others.
    let is_whole = match tag.split(|byte| *byte == b':').next()? {
        b"F" => true,
        b"P" => false,
        _ => return None,
    };
    is_stamp.then(|| (stream, is_whole, words.next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwrapped(lines: &[&str]) -> Vec<String> {
        let mut unwrapper = Unwrapper::default();
        let mut found = Vec::new();
        for line in lines {
            match unwrapper.unwrap(line.as_bytes()).expect("a wrapper") {
                Unwrapped::Line(line, _) => {
                    found.push(String::from_utf8(line.to_vec()).expect("text"));
                }
                Unwrapped::Part => {}
                Unwrapped::TooLong => found.push("too long".to_owned()),
            }
        }
        found.extend((0..unwrapper.unfinished()).map(|_| "unfinished".to_owned()));
        found
    }

    #[test]
    fn parts_are_put_together_stream_by_stream() {
        let cri = |rest: &str| format!("2025-12-31T17:37:40.493035218+01:00 {rest}");
        let lines = [
            "stdout F whole one",
            "stdout P be",
            "stderr P er",
            "stdout P gi",
            "stderr F ror",
            "stdout F ns",
            "stdout F ",
            "stderr P lost",
        ]
        .map(cri);
        assert_eq!(
            unwrapped(&lines.each_ref().map(String::as_str)),
            ["whole one", "error", "begins", "", "unfinished"]
        );
        let docker = [
            r#"{"log":"a \"b\"","stream":"stdout","time":"2021-12-08T14:02:43Z"}"#,
            r#"{"log":" c\r\n","stream":"stdout","time":"2021-12-08T14:02:43Z"}"#,
        ];
        assert_eq!(unwrapped(&docker), ["a \"b\" c"]);
    }

    #[test]
    fn parts_are_held_no_further_than_a_line_may_be_long() {
        let part = format!("2025-12-31T17:37:40Z stdout P {}", "a".repeat(40_000));
        let mut unwrapper = Unwrapper::default();
        for _ in 0..100 {
            let part = unwrapper.unwrap(part.as_bytes()).expect("a part");
            assert_eq!(part, Unwrapped::Part);
        }
        assert!(unwrapper.cut[0].capacity() < 4 * LONGEST_LINE);
        let last = unwrapper.unwrap(b"2025-12-31T17:37:40Z stdout F b");
        assert_eq!(last, Ok(Unwrapped::TooLong));
        let next = unwrapper.unwrap(b"2025-12-31T17:37:40Z stdout F b");
        assert_eq!(next, Ok(Unwrapped::Line(b"b", Some(Wrapper::Cri))));
    }

    #[test]
    fn what_only_looks_like_a_wrapper_is_left_as_it_is() {
        for line in [
            "2025-12-31T17:37:40Z stdout X line",
            "10.0.0.1 stdout F line",
            "",
            "a b",
        ] {
            assert_eq!(unwrapped(&[line]), [line]);
        }
        let broken = Unwrapper::default().unwrap(b"{\"log\":\"").err();
        assert_eq!(broken, Some(Reason::Json));
    }
}
