//! Writing JSON: the library reads messages as such.

use std::fmt::Write;

/// Appends a text as a string of JSON.
pub(crate) fn quote(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\0'..='\x1f' => write!(json, "\\u{:04x}", character as u32).expect("a string takes all text"),
            _ => json.push(character),
        }
    }
    json.push('"');
}

/// Appends the members of an object whose values are texts.
pub(crate) fn object<'a>(json: &mut String, members: impl IntoIterator<Item = (&'a str, &'a str)>) {
    json.push('{');
    for (index, (key, value)) in members.into_iter().enumerate() {
        json.push_str(if index > 0 { ", " } else { "" });
        quote(json, key);
        json.push_str(": ");
        quote(json, value);
    }
    json.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> String {
        let mut json = String::new();
        quote(&mut json, text);
        json
    }

    #[test]
    fn strings() {
        assert_eq!(quoted(""), r#""""#);
        assert_eq!(quoted("Grüße, 世界 🦊 / </x>"), r#""Grüße, 世界 🦊 / </x>""#);
        assert_eq!(quoted("a\"b\\c"), r#""a\"b\\c""#);
        assert_eq!(quoted("\n\r\t\0\x01\x1f\x7f\u{2028}"), "\"\\n\\r\\t\\u0000\\u0001\\u001f\x7f\u{2028}\"");
    }

    #[test]
    fn every_control_character_is_escaped() {
        for code in 0..0x20u8 {
            let json = quoted(&char::from(code).to_string());
            assert!(json.len() > 3 && json.bytes().all(|byte| byte >= 0x20), "{json}");
        }
    }

    #[test]
    fn objects() {
        let made = |members: &[(&'static str, &'static str)]| {
            let mut json = String::new();
            object(&mut json, members.iter().copied());
            json
        };
        assert_eq!(made(&[]), "{}");
        assert_eq!(made(&[("a", "1"), ("b\n", "\"")]), r#"{"a": "1", "b\n": "\""}"#);
    }
}
