//! The command `postonce`. See `cli` for what it does.

fn main() -> std::process::ExitCode {
    postonce::cli::main()
}
