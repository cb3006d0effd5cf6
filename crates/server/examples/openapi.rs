//! Prints the OpenAPI file: `cargo run -p duly-server --example openapi > docs/reference/openapi.json`.

fn main() {
    print!("{}", duly_server::http::openapi());
}
