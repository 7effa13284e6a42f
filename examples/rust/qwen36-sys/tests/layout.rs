//! Sizes, offsets and constants are those that the C compiler sees: lines.rs is the baseline of the binary interface.

#![allow(clippy::unnecessary_cast)]

use qwen36_sys::*;
use std::mem::{size_of, MaybeUninit};
use std::ptr::addr_of;

fn pointee_size<T>(_: *const T) -> usize {
    size_of::<T>()
}

macro_rules! SIZE {
    ($kind:ident, $size:expr) => {
        assert_eq!(size_of::<$kind>(), $size, stringify!($kind))
    };
}

macro_rules! FIELD {
    ($kind:ident, $field:ident, $offset:expr, $size:expr) => {{
        let value = MaybeUninit::<$kind>::uninit();
        let base = value.as_ptr();
        // SAFETY: an address is taken, nothing is read.
        let field = unsafe { addr_of!((*base).$field) };
        let found = (field as usize - base as usize, pointee_size(field));
        assert_eq!(found, ($offset, $size), concat!(stringify!($kind), ".", stringify!($field)));
    }};
}

macro_rules! CONSTANT {
    ($name:ident, $value:expr) => {
        assert_eq!($name as i64, $value as i128 as i64, stringify!($name))
    };
}

#[test]
fn layout_is_that_of_the_header() {
    include!("layout/lines.rs");
}

#[test]
fn the_library_is_of_the_version_of_the_bindings() {
    // SAFETY: takes nothing and returns a number.
    let version = unsafe { qwen36_version_number() };
    assert_eq!(version as i64 / 10000, QWEN36_VERSION_MAJOR as i64);
}
