//! The text of an answer, as it comes, into reasoning, content and tool calls.

use crate::json;

/// What a piece of an answer is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What stands in `<think>`.
    Reasoning,
    /// What the model says.
    Content,
}

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// Its arguments in order. A value is the text that the model wrote: a number or a list is its JSON.
    pub arguments: Vec<(String, String)>,
}

impl ToolCall {
    /// What stands within `<tool_call>`: `<function=NAME>`, for each argument `<parameter=KEY>` VALUE `</parameter>`,
    /// and `</function>`, each on a line of its own. None where the text is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let inside = text.trim().strip_prefix("<function=")?.strip_suffix("</function>")?;
        let (name, rest) = inside.split_once('>')?;
        let mut rest = rest.trim_start();
        let mut call = Self { name: name.to_string(), arguments: Vec::new() };
        while !rest.is_empty() {
            let (key, after) = rest.strip_prefix("<parameter=")?.split_once('>')?;
            let (value, after) = after.split_once("</parameter>")?;
            call.set(key, without_frame(value));
            rest = after.trim_start();
        }
        (!name.is_empty()).then_some(call)
    }

    /// The value of an argument.
    pub fn argument(&self, key: &str) -> Option<&str> {
        self.arguments.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// A key that comes twice has its last value.
    fn set(&mut self, key: &str, value: &str) {
        match self.arguments.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value.to_string(),
            None => self.arguments.push((key.to_string(), value.to_string())),
        }
    }

    pub(crate) fn write_json(&self, json: &mut String) {
        json.push_str(r#"{"type": "function", "function": {"name": "#);
        json::quote(json, &self.name);
        json.push_str(r#", "arguments": "#);
        json::object(json, self.arguments.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        json.push_str("}}");
    }
}

/// The template sets a value in lines of its own.
fn without_frame(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

pub(crate) const OPEN_THINK: &str = "<think>";
const CLOSE_THINK: &str = "</think>";
const OPEN_CALL: &str = "<tool_call>";
const CLOSE_CALL: &str = "</tool_call>";

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Of the content only white space has come.
    Begin,
    Reasoning,
    Content,
    Call,
}

impl State {
    /// The mark that ends it, if one can.
    fn end(self, tools: bool) -> Option<&'static str> {
        match self {
            State::Reasoning => Some(CLOSE_THINK),
            State::Content if tools => Some(OPEN_CALL),
            State::Call => Some(CLOSE_CALL),
            _ => None,
        }
    }
}

/// What was shown of a part, and the line breaks behind it, which are no part of it unless more follows.
#[derive(Default)]
struct Shown {
    text: String,
    breaks: String,
}

impl Shown {
    /// Adds to it; what may be shown now.
    fn add(&mut self, text: &str) -> String {
        let text = if self.text.is_empty() {
            text.trim_start_matches('\n').to_string()
        } else {
            std::mem::take(&mut self.breaks) + text
        };
        let shown = text.trim_end_matches('\n');
        self.breaks = text[shown.len()..].to_string();
        self.text.push_str(shown);
        shown.to_string()
    }
}

/// Takes text cut anywhere; gives pieces whose concatenation does not depend on the cut. What may become a mark is held
/// back, and so are line breaks at the end of reasoning and content. A tool call comes out whole, in `calls`; one that
/// is malformed or unfinished is content, so that nothing is lost.
pub(crate) struct Splitter {
    pub calls: Vec<ToolCall>,
    tools: bool,
    state: State,
    /// Not yet looked at.
    text: String,
    reasoning: Shown,
    content: Shown,
}

type Pieces = Vec<(Part, String)>;

impl Splitter {
    /// reasoning: whether the text begins within `<think>`. tools: whether there are tools to call; a call is content
    /// otherwise.
    pub fn new(reasoning: bool, tools: bool) -> Self {
        Self {
            calls: Vec::new(),
            tools,
            state: if reasoning { State::Reasoning } else { State::Begin },
            text: String::new(),
            reasoning: Shown::default(),
            content: Shown::default(),
        }
    }

    /// The pieces that are certain with this text.
    pub fn push(&mut self, text: &str) -> Pieces {
        let mut pieces = Pieces::new();
        self.text.push_str(text);
        while self.advance(&mut pieces) {}
        pieces
    }

    /// The end of the text: the pieces that were held back.
    pub fn finish(&mut self) -> Pieces {
        let mut pieces = Pieces::new();
        let rest = std::mem::take(&mut self.text);
        if self.state == State::Call {
            self.state = State::Content;
            self.show(&mut pieces, OPEN_CALL);
        }
        self.show(&mut pieces, &rest);
        pieces
    }

    /// Reasoning and content.
    pub fn into_parts(self) -> (String, String) {
        (self.reasoning.text, self.content.text)
    }

    /// Goes up to the next mark; whether there was one.
    fn advance(&mut self, pieces: &mut Pieces) -> bool {
        if self.state == State::Begin {
            return self.begin();
        }
        let mark = self.state.end(self.tools);
        let found = mark.and_then(|mark| self.text.find(mark).map(|at| (at, at + mark.len())));
        let (before, after) = match found {
            Some((begin, end)) => (self.text[..begin].to_string(), self.text[end..].to_string()),
            None => {
                let certain = self.certain(mark);
                let after = self.text.split_off(certain);
                (std::mem::take(&mut self.text), after)
            }
        };
        self.text = after;
        match self.state {
            State::Call if found.is_some() => self.take_call(pieces, &before),
            _ => self.show(pieces, &before),
        }
        if found.is_some() {
            self.state = if self.state == State::Content { State::Call } else { State::Content };
        }
        found.is_some()
    }

    /// A model that was not asked to think may do so by itself.
    fn begin(&mut self) -> bool {
        let text = self.text.trim_start();
        if let Some(rest) = text.strip_prefix(OPEN_THINK) {
            self.text = rest.to_string();
            self.state = State::Reasoning;
        } else if !OPEN_THINK.starts_with(text) {
            self.state = State::Content;
        }
        self.state != State::Begin
    }

    /// How much of the text, which has no mark, cannot be the beginning of one. A call comes out whole.
    fn certain(&self, mark: Option<&str>) -> usize {
        if self.state == State::Call {
            return 0;
        }
        let begins = |mark: &str| (1..mark.len()).rev().find(|&size| self.text.ends_with(&mark[..size]));
        self.text.len() - mark.and_then(begins).unwrap_or(0)
    }

    fn take_call(&mut self, pieces: &mut Pieces, text: &str) {
        match ToolCall::parse(text) {
            Some(call) => self.calls.push(call),
            None => self.show(pieces, &[OPEN_CALL, text, CLOSE_CALL].concat()),
        }
    }

    fn show(&mut self, pieces: &mut Pieces, text: &str) {
        let (part, shown) = match self.state {
            State::Reasoning => (Part::Reasoning, &mut self.reasoning),
            _ => (Part::Content, &mut self.content),
        };
        let text = shown.add(text);
        if !text.is_empty() {
            pieces.push((part, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = "<tool_call>\n<function=clock>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>";

    fn call(name: &str, arguments: &[(&str, &str)]) -> ToolCall {
        let arguments = arguments.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        ToolCall { name: name.to_string(), arguments }
    }

    /// Reasoning, content and calls of a text that comes in pieces of a number of characters.
    fn split(text: &str, reasoning: bool, tools: bool, size: usize) -> (String, String, Vec<ToolCall>) {
        let mut splitter = Splitter::new(reasoning, tools);
        let characters: Vec<char> = text.chars().collect();
        let mut pieces = Pieces::new();
        for piece in characters.chunks(size) {
            pieces.extend(splitter.push(&piece.iter().collect::<String>()));
        }
        pieces.extend(splitter.finish());
        assert!(splitter.finish().is_empty());
        let joined = |wanted: Part| -> String {
            pieces.iter().filter(|(part, _)| *part == wanted).map(|(_, text)| text.as_str()).collect()
        };
        let (thought, said) = (joined(Part::Reasoning), joined(Part::Content));
        let calls = splitter.calls.clone();
        assert_eq!(splitter.into_parts(), (thought.clone(), said.clone()));
        (thought, said, calls)
    }

    fn expect(text: &str, reasoning: bool, thought: &str, said: &str, calls: &[ToolCall]) {
        for size in 1..text.len() + 2 {
            assert_eq!(split(text, reasoning, true, size), (thought.into(), said.into(), calls.to_vec()), "{text:?}");
        }
    }

    #[test]
    fn reasoning_and_content() {
        expect("", false, "", "", &[]);
        expect("Grüße\n世界", false, "", "Grüße\n世界", &[]);
        expect("\nWell\n\n so. \n</think>\n\n Hello \n there.\n\n", true, "Well\n\n so. ", " Hello \n there.", &[]);
        expect("Never ends </thin", true, "Never ends </thin", "", &[]);
        expect("\n <think>\nBy itself.\n</think>\n\nYes.", false, "By itself.", "Yes.", &[]);
        expect("<thi", false, "", "<thi", &[]);
        expect(" \n ", false, "", " \n ", &[]);
        expect("a <think> b </think> c", false, "", "a <think> b </think> c", &[]);
        expect("x</think>a</think>b", true, "x", "a</think>b", &[]);
    }

    #[test]
    fn tool_calls() {
        let clock = call("clock", &[("city", "Oslo")]);
        expect(
            &format!("So.\n</think>\n\nLet me see.\n\n{CALL}"),
            true,
            "So.",
            "Let me see.",
            std::slice::from_ref(&clock),
        );
        expect(&format!("{CALL}\n{CALL}"), false, "", "", &[clock.clone(), clock.clone()]);
        expect(&format!("{CALL}\nAnd?"), false, "", "And?", &[clock]);
        expect("a <tool_call>b</tool_call> c", false, "", "a <tool_call>b</tool_call> c", &[]);
        let cut = &CALL[..CALL.len() - 3];
        expect(cut, false, "", cut, &[]);
        expect("<tool_cal <tool_call", false, "", "<tool_cal <tool_call", &[]);
        for size in 1..CALL.len() {
            assert_eq!(split(CALL, false, false, size), (String::new(), CALL.to_string(), Vec::new()));
        }
    }

    #[test]
    fn what_is_certain_comes_at_once() {
        let mut splitter = Splitter::new(true, true);
        assert_eq!(splitter.push("a b "), [(Part::Reasoning, "a b ".to_string())]);
        assert_eq!(splitter.push("c\n</th"), [(Part::Reasoning, "c".to_string())]);
        assert_eq!(splitter.push("ink>\nd <t"), [(Part::Content, "d ".to_string())]);
        assert_eq!(splitter.push("e"), [(Part::Content, "<te".to_string())]);
    }

    #[test]
    fn parsing() {
        assert_eq!(ToolCall::parse("<function=f></function>"), Some(call("f", &[])));
        let text =
            "\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n\n x\ny\n\n</parameter>\n</function>\n";
        let parsed = ToolCall::parse(text).unwrap();
        assert_eq!(parsed, call("f", &[("a", "1"), ("b", "\n x\ny\n")]));
        assert_eq!((parsed.argument("a"), parsed.argument("c")), (Some("1"), None));
        let twice = "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>";
        assert_eq!(ToolCall::parse(twice), Some(call("f", &[("a", "2")])));
        let inside = "<function=f>\n<parameter=a>\na > b </function>\n</parameter>\n</function>";
        assert_eq!(ToolCall::parse(inside), Some(call("f", &[("a", "a > b </function>")])));
        for text in [
            "",
            "{}",
            "<function=f>",
            "<function=>\n</function>",
            "<function=</function>",
            "<function=f>x</function>",
            "<function=f><parameter=a></function>",
            "<function=f><parameter=a</function>",
            "x<function=f></function>",
        ] {
            assert_eq!(ToolCall::parse(text), None, "{text}");
        }
    }

    #[test]
    fn json_of_a_call() {
        let mut json = String::new();
        call("f\n", &[("a", "\"1\"")]).write_json(&mut json);
        assert_eq!(json, r#"{"type": "function", "function": {"name": "f\n", "arguments": {"a": "\"1\""}}}"#);
    }
}
