//! One binary: the server and its command line.

fn main() -> std::process::ExitCode {
    duly_cli::main()
}
