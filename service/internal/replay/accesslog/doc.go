// Package accesslog reads the access logs of web servers, proxies and load balancers.
//
// [Read] detects the format from the first lines: the common and combined formats with what people put around them, JSON
// and logfmt lines, CSV with named columns, and the text formats of HAProxy, Traefik, Envoy and AWS load balancers. Any other format is read by the server's own description of it: nginx's
// log_format or Apache's LogFormat ([Options.LogFormat]).
//
// What stands around the lines is detected too and taken off: the prefixes of container runtimes, Docker's JSON, syslog, what
// journalctl writes but for its export format, and the names that compose writes.
//
// Lines that cannot be parsed are counted and skipped. [Stats] says what was understood.
package accesslog
