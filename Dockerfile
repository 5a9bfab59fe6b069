# sash serve in an image that holds one static binary and the certificates of public authorities.
#
#   docker build -t sash .
#   docker run --rm -p 8080:8080 -p 8081:8081 -v ./limits.yaml:/etc/sash/limits.yaml:ro sash
#
# Its exit and readiness are what an orchestrator should look at: GET /healthz on 8080, or gRPC health on 8081.
# On SIGTERM health is down for five seconds before connections are refused, which is what an orchestrator needs to
# send elsewhere: whoever gives arguments of his own should give --drain-delay too.
# The admin port, 6070, listens on the loopback of the container unless --admin-addr says otherwise.
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /sash ./service/cmd/sash

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /sash /sash
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/sash"]
CMD ["serve", "--config", "/etc/sash", "--json", "--drain-delay", "5s"]
