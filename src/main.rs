//! The command `postonce`. See `cli` for what it does.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    postonce::cli::main()
}
