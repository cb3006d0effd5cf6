//! A broker that speaks AMQP as far as the login at most. It needs no RabbitMQ.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// What happened to a connection of a broker that falls silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SilentEvent {
    /// It was taken.
    Accepted,
    /// From now on it is not answered.
    Silent,
    /// The client has closed it.
    Closed,
}

/// A frame with a method, on the channel of the connection.
fn method(class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    let size = u32::try_from(arguments.len() + 4).unwrap();
    let mut frame = vec![1, 0, 0];
    frame.extend(size.to_be_bytes());
    frame.extend([class.to_be_bytes(), method.to_be_bytes()].concat());
    frame.extend(arguments);
    frame.push(0xCE);
    frame
}

fn long_text(words: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(words.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(words.as_bytes());
    bytes
}

/// Reads until the client has sent a method of the class of connections.
async fn until(stream: &mut TcpStream, method: u8) -> std::io::Result<()> {
    let (mut seen, wanted) = (Vec::new(), [0, 10, 0, method]);
    while !seen.windows(wanted.len()).any(|window| window == wanted) {
        seen.push(stream.read_u8().await?);
    }
    Ok(())
}

async fn log_in(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 8]).await?;
    let start = [vec![0, 9], vec![0; 4], long_text("PLAIN"), long_text("en_US")].concat();
    stream.write_all(&method(10, 10, &start)).await?;
    until(stream, 11).await?;
    let (channels, frame_bytes, heartbeat) = ([0, 64], [0, 2, 0, 0], [0, 60]);
    stream.write_all(&method(10, 30, &[&channels[..], &frame_bytes, &heartbeat].concat())).await?;
    until(stream, 40).await?;
    stream.write_all(&method(10, 41, &[0])).await
}

/// A broker that takes connections, lets the client log in if `logs_in`, and then never answers: its port, and what happens there.
///
/// # Panics
/// If there is no port for it.
pub async fn silent_broker(logs_in: bool) -> (u16, mpsc::UnboundedReceiver<SilentEvent>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (events, happened) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(fall_silent(stream, logs_in, events.clone()));
        }
    });
    (port, happened)
}

async fn fall_silent(mut stream: TcpStream, logs_in: bool, events: mpsc::UnboundedSender<SilentEvent>) {
    // A test that listens no more needs no news.
    let _ = events.send(SilentEvent::Accepted);
    if !logs_in || log_in(&mut stream).await.is_ok() {
        let _ = events.send(SilentEvent::Silent);
        while stream.read_u8().await.is_ok() {}
    }
    let _ = events.send(SilentEvent::Closed);
}
