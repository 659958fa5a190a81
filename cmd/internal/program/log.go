package program

import (
	"errors"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// LogFormat is the form of a log's lines: text or json.
type LogFormat string

// The formats. docs/operators/monitoring.md has the keys of lines.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// LogFormatFlag adds the flag --log-format.
func LogFormatFlag(flags *pflag.FlagSet) *LogFormat {
	f := LogText
	LogFormatVar(flags, &f)
	return &f
}

// LogFormatVar adds the flag --log-format, which sets f.
func LogFormatVar(flags *pflag.FlagSet, f *LogFormat) {
	*f = LogText
	flags.Var(f, "log-format", "the `form` of the log's lines on standard error: text or json")
}

// CompleteLogFormat sets shell completion for the flag of a command.
func CompleteLogFormat(cmd *cobra.Command) {
	formats := []cobra.Completion{string(LogText), string(LogJSON)}
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // it has none yet
}

// String is the flag's value.
func (f *LogFormat) String() string { return string(*f) }

// Type is empty: the flag's help has a word of its own.
func (f *LogFormat) Type() string { return "" }

// Set is for pflag.
func (f *LogFormat) Set(text string) error {
	switch *f = LogFormat(text); *f {
	case LogText, LogJSON:
		return nil
	}
	return errors.New("want text or json")
}

// LogAs returns a log on standard error: all of it with verbose, else without the details. Each line of a JSON log is an
// object with the keys time, level and msg, and those of the event. Its times are in UTC, and its durations in seconds.
func (p Process) LogAs(f LogFormat, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	if f == LogJSON {
		options.ReplaceAttr = jsonAttr
		log := slog.New(slog.NewJSONHandler(p.Stderr, options))
		if p.last != nil {
			p.last.Store(log)
		}
		return log
	}
	return slog.New(slog.NewTextHandler(p.Stderr, options))
}

// jsonAttr gives values the form that programs compare and add up: times of all hosts are in UTC, and a duration, which
// slog would write in nanoseconds, is a number of seconds.
func jsonAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() { //nolint:exhaustive // the others have a form of their own
	case slog.KindTime:
		return slog.Time(a.Key, a.Value.Time().UTC())
	case slog.KindDuration:
		return slog.Float64(a.Key, a.Value.Duration().Seconds())
	}
	return a
}
