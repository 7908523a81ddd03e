//! What the columnar Spark source in `jvm` calls: a range of offsets of a directory as the memory of Arrow columns.
//!
//! Only numbers and addresses cross, so nothing of JNI is used but its function names. The methods are those of
//! `fletchlog.spark.Native`, which says what they mean. No panic leaves them.
#![allow(unsafe_code)]

mod columns;
mod directories;
mod reader;
mod spark_types;
mod typed;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering};

use columns::Asked;
use reader::{Range, Reader, Step};
use typed::Typed;

/// What `next` returns instead of a number of rows.
const END: i32 = 0;
const FAILED: i32 = -1;
const LOST: i32 = -2;

/// Readers that are open.
static OPEN: AtomicI64 = AtomicI64::new(0);

/// A reader and the text of its last result, which Java reads from here.
struct Handle {
    /// Why there is none.
    reader: Result<Reader, String>,
    /// Longs that Java has room for.
    slots: usize,
    text: String,
}

/// The text of a panic, if `call` panics.
fn caught<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!("internal error: {}", text.unwrap_or_default()))
    })
}

/// # Safety
/// `length` readable bytes are at `address`.
unsafe fn text_at(address: i64, length: i32) -> String {
    let length = usize::try_from(length).unwrap_or(0);
    // SAFETY: the caller's promise. Java keeps the bytes during the call; an array of no bytes has an address too.
    let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, length) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// A reader of the offsets `start` to `end` of one partition. Nothing is read yet.
///
/// # Safety
/// `text` is the address of readable bytes: the path, the topic, and what [`Typed::parse`] takes, as many as the lengths say. `slots` is how many longs
/// `next` may write.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_fletchlog_spark_Native_open(
    _env: *mut c_void,
    _class: *mut c_void,
    text: i64,
    path_length: i32,
    topic_length: i32,
    described_length: i32,
    asked_length: i32,
    partition: i32,
    start: i64,
    end: i64,
    committed: u8,
    columns: i32,
    slots: i32,
) -> i64 {
    let mut at = text;
    let [path, topic, described, asked] = [path_length, topic_length, described_length, asked_length].map(|length| {
        // SAFETY: the caller's promise.
        let text = unsafe { text_at(at, length) };
        at += i64::from(length);
        text
    });
    let range = Range::new(path, &topic, partition, start..end, committed != 0);
    let reader = caught(|| {
        Ok(Reader::new(
            range,
            Asked::new(columns, Typed::parse(&described, &asked)?),
        ))
    });
    let handle = Handle {
        reader,
        slots: usize::try_from(slots).unwrap_or(0),
        text: String::new(),
    };
    OPEN.fetch_add(1, Ordering::Relaxed);
    Box::into_raw(Box::new(handle)) as i64
}

/// The next rows. The memory that is written to `out` lives until the next call for this reader.
///
/// # Safety
/// `handle` is from `open`, not closed, and used by no other thread; `out` is the address of as many
/// writable longs as `open` was given.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_fletchlog_spark_Native_next(
    _env: *mut c_void,
    _class: *mut c_void,
    handle: i64,
    out: i64,
) -> i32 {
    // SAFETY: the caller's promise.
    let handle = unsafe { &mut *(handle as *mut Handle) };
    // SAFETY: as above.
    let out = unsafe { std::slice::from_raw_parts_mut(out as *mut i64, handle.slots) };
    let Handle { reader, text, .. } = handle;
    let answer = match caught(|| reader.as_mut().map_err(|why| why.clone())?.next(out)) {
        Ok(Step::Rows(rows)) => return rows,
        Ok(Step::End) => return END,
        Ok(Step::Lost(what)) => {
            *text = what;
            LOST
        }
        Err(what) => {
            *text = what;
            FAILED
        }
    };
    if let [address, length, ..] = out {
        *address = text.as_ptr() as i64;
        *length = i64::try_from(text.len()).unwrap_or(0);
    }
    answer
}

/// Frees a reader and the memory of its last rows.
///
/// # Safety
/// `handle` is from `open` and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_fletchlog_spark_Native_close(_env: *mut c_void, _class: *mut c_void, handle: i64) {
    // SAFETY: the caller's promise: it was made by `Box::into_raw` and is freed once.
    let handle = unsafe { Box::from_raw(handle as *mut Handle) };
    OPEN.fetch_sub(1, Ordering::Relaxed);
    // A panic during the drop cannot be reported to anybody; it leaks the reader's memory.
    let _ = caught(move || {
        drop(handle);
        Ok(())
    });
}

/// How many readers are open.
#[unsafe(no_mangle)]
pub extern "system" fn Java_fletchlog_spark_Native_openReaders(_env: *mut c_void, _class: *mut c_void) -> i64 {
    OPEN.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
