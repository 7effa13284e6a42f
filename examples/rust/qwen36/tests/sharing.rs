//! What sessions share: known prefixes, forks; and the statistics that tell.

use std::sync::{Arc, Mutex};

use qwen36::{sample, ErrorKind, Logits, Model, ModelOptions, Session, SessionOptions, Stats};

const DEMO_MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo-model");

fn load(options: ModelOptions) -> Model {
    Model::load(DEMO_MODEL, options.threads(1)).unwrap()
}

fn tokens() -> Vec<i32> {
    (0..200).map(|i| 7 * i % 400).collect()
}

fn with_space(model: &Model, space: u64) -> Session {
    Session::new(model, SessionOptions::new().prefix_space(space)).unwrap()
}

fn sum(first: &Session, second: &Session, field: impl Fn(&Stats) -> u64) -> u64 {
    field(&first.stats().unwrap()) + field(&second.stats().unwrap())
}

#[test]
fn statistics_add_up() {
    let model = load(ModelOptions::new());
    let (mut first, mut second) = (model.session().unwrap(), model.session().unwrap());
    let reversed: Vec<i32> = tokens().into_iter().rev().collect();
    first.append(&tokens(), Logits::Last).unwrap();
    second.append(&reversed, Logits::Last).unwrap();
    first.compute().unwrap();
    second.compute().unwrap();
    sample(&mut [&mut first, &mut second]).unwrap();
    let all = model.stats().unwrap();
    assert_eq!((all.sessions, all.computed_tokens, all.sampled_tokens, all.reused_tokens), (2, 400, 2, 0));
    assert_eq!(all.computed_tokens, sum(&first, &second, |stats| stats.computed_tokens));
    assert_eq!(all.held_blocks, sum(&first, &second, |stats| stats.held_blocks));
    assert_eq!(all.blocks as i32, model.info().unwrap().kv_blocks);
    assert!(all.snapshots > 0 && all.compute_seconds > 0.0 && all.sample_seconds > 0.0);
}

#[test]
fn a_prefix_is_reused_within_its_space() {
    let model = load(ModelOptions::new());
    let mut first = with_space(&model, 7);
    first.append(&tokens(), Logits::Last).unwrap();
    first.compute().unwrap();
    drop(first);
    let (mut second, mut stranger) = (with_space(&model, 7), with_space(&model, 8));
    assert_eq!((second.sync(&tokens()).unwrap(), stranger.sync(&tokens()).unwrap()), (192, 0));
    assert_eq!(second.stats().unwrap().reused_tokens, 192);
    drop(second);
    assert_eq!(model.stats().unwrap().cached_blocks, 3);
    model.clear_cache().unwrap();
    let stats = model.stats().unwrap();
    assert_eq!((stats.cached_blocks, stats.snapshots), (0, 0));
    assert_eq!(with_space(&model, 7).sync(&tokens()).unwrap(), 0);
}

#[test]
fn options_of_the_cache() {
    let model = load(ModelOptions::new().prefix_reuse(false));
    let info = model.info().unwrap();
    assert_eq!((info.snapshots, model.stats().unwrap().snapshot_room), (0, 0));
    assert_eq!(load(ModelOptions::new().snapshot_bytes(3 * info.state_bytes)).info().unwrap().snapshots, 3);
    assert!(load(ModelOptions::new().memory_share(0.01)).info().unwrap().kv_blocks > 0);
    let error = Model::load(DEMO_MODEL, ModelOptions::new().memory_share(2.0)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Argument);
}

#[test]
fn a_fork_goes_its_own_way() {
    let model = load(ModelOptions::new());
    let mut session = model.session().unwrap();
    session.append(&tokens()[..100], Logits::Last).unwrap();
    session.compute().unwrap();
    let mut fork = session.fork().unwrap();
    assert_eq!((fork.tokens(..).unwrap(), fork.computed()), (session.tokens(..).unwrap(), 100));
    assert_eq!((fork.capacity(), fork.logits().unwrap()), (session.capacity(), session.logits().unwrap()));
    assert_eq!(fork.sampling().unwrap(), session.sampling().unwrap());
    fork.append(&[5], Logits::Last).unwrap();
    fork.compute().unwrap();
    let stats = fork.stats().unwrap();
    assert_eq!((stats.copied_blocks, stats.computed_tokens, session.len()), (1, 1, 100));
    drop(session);
    fork.sample().unwrap();
    fork.compute().unwrap();
    assert_eq!(fork.computed(), 102);
}

#[test]
fn a_fork_may_have_a_callback() {
    let model = load(ModelOptions::new());
    let mut session = model.session().unwrap();
    session.append(&[1, 2], Logits::Last).unwrap();
    let rows = Arc::new(Mutex::new(Vec::new()));
    let seen = rows.clone();
    let options = SessionOptions::new().context_length(10).on_logits(move |at, _| seen.lock().unwrap().push(at));
    let mut fork = session.fork_with(options).unwrap();
    fork.append(&[3], Logits::All).unwrap();
    fork.compute().unwrap();
    assert_eq!((rows.lock().unwrap().as_slice(), fork.capacity()), (&[2][..], 10));
    let error = session.fork_with(SessionOptions::new().context_length(1)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ContextFull);
}

#[test]
fn a_session_is_saved_and_restored() {
    let model = load(ModelOptions::new());
    let other = load(ModelOptions::new());
    let mut session = model.session().unwrap();
    session.append(&tokens()[..100], Logits::Last).unwrap();
    session.compute().unwrap();
    let bytes = session.save_bytes().unwrap();
    let path = std::env::temp_dir().join(format!("qwen36-rust-{}.qw36", std::process::id()));
    session.save(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let mut from_file = Session::restore(&other, &path, SessionOptions::new()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let from_bytes = Session::restore_bytes(&other, &bytes, SessionOptions::new()).unwrap();
    assert_eq!(from_file.logits().unwrap(), session.logits().unwrap());
    assert_eq!(from_bytes.tokens(..).unwrap(), session.tokens(..).unwrap());
    assert_eq!(from_file.sample().unwrap(), session.sample().unwrap());
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    let error = Session::restore_bytes(&other, &damaged, SessionOptions::new()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Snapshot);
}

#[test]
fn prefixes_outlive_the_model() {
    let directory = std::env::temp_dir().join(format!("qwen36-rust-prefixes-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let reused: Vec<usize> = (0..2)
        .map(|_| {
            let model = load(ModelOptions::new().prefix_directory(&directory, 1 << 30).unwrap());
            let mut session = model.session().unwrap();
            let reused = session.sync(&tokens()).unwrap();
            session.compute().unwrap();
            model.flush_prefixes().unwrap();
            reused
        })
        .collect();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(reused, [0, (tokens().len() - 1) / 64 * 64]);
}
