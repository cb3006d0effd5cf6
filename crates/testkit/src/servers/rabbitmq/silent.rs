//! Brokers that speak a little AMQP. They need no RabbitMQ.

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

const FRAME_END: u8 = 0xCE;
const METHOD_FRAME: u8 = 1;

/// A frame with a method, on the channel of the connection.
fn method(class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    method_on(0, class, method, arguments)
}

fn method_on(channel: u16, class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    let size = u32::try_from(arguments.len() + 4).unwrap();
    let mut frame = vec![METHOD_FRAME];
    frame.extend(channel.to_be_bytes());
    frame.extend(size.to_be_bytes());
    frame.extend([class.to_be_bytes(), method.to_be_bytes()].concat());
    frame.extend(arguments);
    frame.push(FRAME_END);
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

/// A broker that opens and closes channels, takes messages and never confirms one: its port.
///
/// # Panics
/// If there is no port for it.
pub async fn unconfirming_broker() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_channels(stream));
        }
    });
    port
}

/// Until the client goes.
async fn serve_channels(mut stream: TcpStream) -> std::io::Result<()> {
    log_in(&mut stream).await?;
    while stream.read_u8().await? != FRAME_END {}
    loop {
        let (kind, channel, size) =
            (stream.read_u8().await?, stream.read_u16().await?, stream.read_u32().await?);
        let mut payload = vec![0; usize::try_from(size).unwrap()];
        stream.read_exact(&mut payload).await?;
        stream.read_u8().await?;
        let called = payload.first_chunk::<4>().filter(|_| kind == METHOD_FRAME);
        let answer = match called {
            // Channel.Open, Channel.Close, Confirm.Select, Connection.Close.
            Some([0, 20, 0, 10]) => method_on(channel, 20, 11, &[0; 4]),
            Some([0, 20, 0, 40]) => method_on(channel, 20, 41, &[]),
            Some([0, 85, 0, 10]) => method_on(channel, 85, 11, &[]),
            Some([0, 10, 0, 50]) => method_on(channel, 10, 51, &[]),
            _ => continue,
        };
        stream.write_all(&answer).await?;
    }
}
