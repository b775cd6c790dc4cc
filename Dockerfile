# The tag names the toolchain of rust-toolchain.toml, which is left out: rustup would fetch its components.
FROM rust:1.95-bookworm AS build
WORKDIR /build
COPY scripts/require.sh scripts/
# zlib-ng, a dependency of Pingora, is built with cmake, which then wants make; the others are for the training.
RUN scripts/require.sh cmake make curl h2load nginx openssl redis-server wrk

COPY scripts/pgo.sh scripts/train.sh scripts/train.lua scripts/
COPY Cargo.toml Cargo.lock ./
COPY src src
COPY lua lua
# Twice: the first one counts what it does in a minute's training, and the second is optimised by that.
RUN scripts/pgo.sh slidegate \
    && cp target/pgo/release/slidegate .

# The C library that the build used, and the same Debian: distroless would be smaller, but is found on fewer
# mirrors and can not be rebuilt with apt alone. Nothing here needs its shell.
FROM debian:bookworm-slim
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="slidegate" \
    org.opencontainers.image.description="A rate-limiting reverse proxy: sliding window counters in Redis, in front of any HTTP service" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
COPY --from=build /build/slidegate /usr/local/bin/slidegate
COPY config.yaml /etc/slidegate/config.yaml
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
# The proxy; metrics and health.
EXPOSE 8000 9464
STOPSIGNAL SIGTERM
# For Docker alone: Kubernetes has its own probes.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["/usr/local/bin/slidegate", "healthcheck", "--config", "/etc/slidegate/config.yaml"]
ENTRYPOINT ["/usr/local/bin/slidegate"]
CMD ["run", "--config", "/etc/slidegate/config.yaml"]
