//! One question to a server, by the remoting protocol.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// A server that has nothing else to do answers within this.
const LIMIT: Duration = Duration::from_secs(10);

/// The answer: its header in JSON, and its body.
pub(super) fn ask(address: &str, code: i32, fields: &[(&str, &str)]) -> io::Result<String> {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect();
    let header = format!(
        r#"{{"code":{code},"flag":0,"language":"OTHER","opaque":0,"version":400,"extFields":{{{}}}}}"#,
        fields.join(",")
    );
    let mut wire = TcpStream::connect(address)?;
    wire.set_read_timeout(Some(LIMIT))?;
    wire.write_all(&(header.len() as u32 + 4).to_be_bytes())?;
    wire.write_all(&(header.len() as u32).to_be_bytes())?;
    wire.write_all(header.as_bytes())?;
    let mut length = [0; 4];
    wire.read_exact(&mut length)?;
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    wire.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
