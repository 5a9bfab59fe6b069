# sash serve in an image that holds one static binary and nothing else. The binary brings time zones and the certificates
# of public authorities, so there is no base image to pin or to patch. `make image` builds the binary and the image:
#
#   make image
#   docker run --rm -p 8080:8080 -p 8081:8081 -v ./limits.yaml:/etc/sash/limits.yaml:ro sash
#
# For readiness an orchestrator looks at GET /healthz on 8080, or at gRPC health on 8081.
# On SIGTERM health reports down for five seconds (--drain-delay) before connections are refused, so that the orchestrator
# sends requests elsewhere. Requests in flight then have ten, and local admissions five to reach Redis: docker stop -t 30.
# The admin port, 6070, listens on the container's loopback unless --admin-addr says otherwise.
#
# In place of the image of Envoy's rate limit service: its command, /bin/ratelimit, is a link to the binary here, and its
# variables, such as RUNTIME_ROOT and LOG_FORMAT, take precedence over the two below. Flags would take precedence over
# them, so CMD has none that has such a variable.
FROM scratch
COPY sash /sash
COPY bin /bin
ENV SASH_CONFIG=/etc/sash SASH_LOG_FORMAT=json
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/sash"]
CMD ["serve"]
