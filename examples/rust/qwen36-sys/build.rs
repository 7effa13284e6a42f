//! Finds the shared library: in the folder that QWEN36_LIB_DIR names, else by pkg-config.

use std::env;
use std::process::Command;

fn main() {
    for name in ["QWEN36_LIB_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_SYSROOT_DIR"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    match env::var("QWEN36_LIB_DIR") {
        Ok(folder) => {
            println!("cargo:rustc-link-search=native={folder}");
            println!("cargo:rustc-link-lib=dylib=qwen36");
        }
        Err(_) => link_as_pkg_config_says(),
    }
}

fn link_as_pkg_config_says() {
    for flag in pkg_config().split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
    }
}

fn pkg_config() -> String {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_string());
    // Also where libqwen36 lies in a folder that the linker searches anyway: tests may run in a sysroot.
    let output = Command::new(&program).args(["--libs", "qwen36"]).env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1").output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => panic!(
            "libqwen36 is not installed; or set QWEN36_LIB_DIR to its folder\n{}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!("{program}: {error}; or set QWEN36_LIB_DIR to the folder of libqwen36.so"),
    }
}
