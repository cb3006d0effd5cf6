# docker build -t duly .
# docker run -p 127.0.0.1:7380:7380 -v duly:/data -v ./duly.toml:/etc/duly.toml duly serve --config /etc/duly.toml
# In a container Duly listens beyond loopback, so the configuration needs a token: `duly token` makes one. Where nobody else can reach
# it, `serve --listen 0.0.0.0:7380 --data /data --insecure-no-auth` does without.
FROM rust:1.95-slim AS build
WORKDIR /src
COPY . .
RUN apt-get update && apt-get install --yes --no-install-recommends g++ libssl-dev make pkg-config
RUN cargo build --release --locked --package duly-cli --features kafka-tls

FROM debian:stable-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates openssl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --home-dir /data duly \
    && install -d -o duly -g duly -m 700 /data
COPY --from=build /src/target/release/duly /usr/local/bin/duly
USER duly
VOLUME /data
EXPOSE 7380
# Asks /readyz: healthy is a server that could accept and deliver a message now, for what starts or sends after it (Compose's `service_healthy`,
# a proxy). Docker restarts nothing that is unhealthy. What does (Swarm, podman's --health-on-failure) asks /livez instead, by
# `duly health --live`: a restart mends neither a full disk nor a database that is away. An answer takes up to five seconds.
HEALTHCHECK --interval=5s --timeout=10s --start-period=60s --retries=3 CMD ["duly", "health", "--quiet"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["duly"]
CMD ["serve", "--listen", "0.0.0.0:7380", "--data", "/data"]
