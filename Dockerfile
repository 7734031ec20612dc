# The relay as one static binary. Nothing here needs BuildKit.
#
#   docker build -t postrider .
#   docker run -v "$PWD/postrider.toml:/etc/postrider/postrider.toml:ro" -p 127.0.0.1:8432:8432 --stop-timeout 30 postrider
#
# docs/INSTALL.md says how to run it with less than Docker gives by default; deploy/compose.yaml has servers beside it.
# GO_IMAGE must bring Go and CA certificates. BASE may be anything, also an image with a shell for debugging.
ARG GO_IMAGE=golang:1.26
ARG BASE=scratch

FROM ${GO_IMAGE} AS build
WORKDIR /src
# Both are empty for the platform of the builder.
ARG TARGETOS
ARG TARGETARCH
# Passed on if given, for builders that reach modules by a mirror only.
ARG GOPROXY
ARG GOFLAGS
ENV CGO_ENABLED=0
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -buildvcs=false -trimpath -ldflags "-s -w -X github.com/postrider/postrider/internal/build.Version=${VERSION}" -o /out/postrider .

FROM ${BASE}
ARG VERSION=dev
ARG REVISION=
LABEL org.opencontainers.image.title="postrider" \
      org.opencontainers.image.description="Relays a PostgreSQL outbox table to Kafka" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# For TLS to PostgreSQL and Kafka when the configuration names no certificates of its own.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/postrider /usr/local/bin/postrider
# By number: Kubernetes can prove that it is not root, and no passwd file is needed. Nothing is ever written.
USER 65532:65532
# The default is the loopback interface, where no scraper and no probe of another container arrives. It goes before the
# configuration file, as every variable does.
ENV POSTRIDER_HTTP_LISTEN=:8432
EXPOSE 8432
# Asks /livez: a broker that is down must not get the relay restarted.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/usr/local/bin/postrider", "healthcheck"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/postrider"]
CMD ["run"]
