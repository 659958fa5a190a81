// Package failures logs the errors that no caller gets.
package failures

import (
	"context"
	"log/slog"
)

// Log logs an error, unless it is nil or ctx has ended.
func Log(ctx context.Context, to *slog.Logger, doing string, err error) {
	if err != nil && ctx.Err() == nil {
		to.LogAttrs(ctx, slog.LevelError, "failed", slog.String("doing", doing), slog.String("error", err.Error()))
	}
}
