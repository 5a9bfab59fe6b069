package logs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/accesslog"
)

// A logReading is what is read of all files of a log.
type logReading struct {
	*logs
	opts     *accesslog.Options
	selector chooser
	files    []*logFile

	builder     *replay.Builder
	survey      replay.Survey
	stats       accesslog.Stats
	interrupted bool
}

// read reads all logs into a trace. If the context ends, the trace has what was read until then.
func (l *logs) read(cmd *cobra.Command, args []string) (*replay.Trace, logReport, error) {
	r, err := l.newReading(cmd, args)
	if err != nil {
		return nil, logReport{}, err
	}
	for _, f := range r.files {
		if err := r.file(cmd.Context(), f, cmd); err != nil {
			return nil, logReport{}, err
		}
	}
	trace := r.builder.Trace()
	report := r.report(trace)
	return trace, report, r.empty(report)
}

func (l *logs) newReading(cmd *cobra.Command, args []string) (*logReading, error) {
	if err := l.hiding(); err != nil {
		return nil, err
	}
	r := &logReading{logs: l, opts: &accesslog.Options{Fields: l.fields}}
	var err error
	if r.opts.Format, err = accesslog.ParseFormat(l.format); err != nil {
		return nil, err
	}
	if r.opts.LogFormat = l.logFormat; l.logFormat != "" && r.opts.Format != accesslog.Auto {
		return nil, errors.New("--format and --log-format exclude each other")
	}
	if r.opts.Trusted, err = networks(l.trusted); err != nil {
		return nil, fmt.Errorf("--trusted-proxies: %w", err)
	}
	if r.selector, err = l.selector(cmd); err != nil {
		return nil, err
	}
	r.builder = &replay.Builder{}
	r.files, err = l.files(cmd, args, r.opts)
	return r, err
}

// file reads one file. It returns no error for a file that is damaged, is no log or is interrupted, which the reading says.
func (r *logReading) file(ctx context.Context, f *logFile, cmd *cobra.Command) error {
	if f.Skipped != "" || r.interrupted {
		return nil
	}
	r.survey.NextFile()
	stats, err := f.read(ctx, cmd.InOrStdin(), r.opts, r.record)
	var damaged *accesslog.DamagedError
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		r.interrupted = true
	case errors.As(err, &damaged):
		f.Damaged = damaged.Error()
	case f.found && stats.Lines == 0:
		f.Skipped = strings.TrimPrefix(err.Error(), f.Name+": ")
		return nil
	default:
		return err
	}
	if f.found && stats.Lines > 0 && stats.Records == 0 {
		f.Skipped = "no line can be read: " + stats.First[0].Reason
		return nil
	}
	f.Requests, f.Broken = stats.Records, stats.Broken
	r.stats.Add(stats)
	return nil
}

// record adds one request.
func (r *logReading) record(record *accesslog.Record) error {
	r.survey.Add(record)
	selection, counts, err := r.selector.Select(record)
	switch {
	case err != nil && r.hide: // the error may contain the client
		return errHidden
	case err != nil:
		return err
	case !counts:
		r.builder.Skip()
		return nil
	case record.Status == http.StatusTooManyRequests:
		r.builder.Throttled()
	}
	r.builder.Add(record.Time, selection)
	return nil
}

var errHidden = errors.New("an expression fails on this request (run without --hide-clients and --hide-key to see why)")

// empty returns an error for a log in which nothing can be limited: what was found, and what to try.
func (r *logReading) empty(report logReport) error {
	skipped := slices.IndexFunc(r.files, func(f *logFile) bool { return f.Skipped != "" })
	damaged := slices.IndexFunc(r.files, func(f *logFile) bool { return f.Damaged != "" })
	left := report.Filtered + report.Unlimited
	switch {
	case report.Requests > 0:
		return nil
	case r.interrupted:
		return errors.New("interrupted before a request was read")
	case report.Broken > 0 && left == 0:
		b := report.BrokenLines[0]
		return fmt.Errorf("no line of the log could be read: %s:%d: %s. Without --format it is detected; --field names fields with unusual names: --field time=when%s", b.File, b.Line, b.Reason, shown(b.Text))
	case skipped >= 0 && left == 0:
		return fmt.Errorf("no file is an access log: %s: %s", r.files[skipped].Name, r.files[skipped].Skipped)
	case damaged >= 0 && left == 0:
		return fmt.Errorf("%s: %s before its first request. Copy the file again", r.files[damaged].name(), r.files[damaged].Damaged)
	case left == 0:
		return fmt.Errorf("the log is empty: no line in %s", filesText(r.files))
	}
	var why []string
	for _, m := range r.selector.Missing() {
		why = append(why, m.String())
	}
	if report.Filtered > 0 {
		why = append(why, fmt.Sprintf("--where leaves out %d", report.Filtered))
	}
	if report.Unlimited > 0 {
		why = append(why, fmt.Sprintf("%d have no key, no cost, or no rule", report.Unlimited))
	}
	return fmt.Errorf("no request is left: %s. --key, --cost and --where select what counts, and --field names fields with unusual names", strings.Join(why, ", "))
}

func shown(line string) string {
	if line == "" {
		return ""
	}
	return ". The line begins with " + fmt.Sprintf("%q", printable(line))
}

// ended returns the error that makes the exit code of an answer that is written.
func (l *logs) ended(report *logReport, warned bool, found error) error {
	switch {
	case report.Partial != "":
		return errInterrupted
	case l.strict && (warned || len(report.LogWarnings) > 0):
		return errWarned
	}
	return found
}

// studying returns the context of what follows reading. After an interrupt that is short; a second one ends the process.
func (r *logReport) studying(ctx context.Context) context.Context {
	if r.Partial != "" {
		return context.WithoutCancel(ctx)
	}
	return ctx
}
