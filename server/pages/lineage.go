package pages

import (
	"context"
	"log/slog"

	"github.com/cl-slurm/cl-slurm/server/pages/lineage"
)

// lineageView shows the ancestors and descendants of a bundle. It has no boxes if there are none.
type lineageView struct {
	lineage.Graph
	lineage.Picture
	// Unread is a sentence about why there is no picture.
	Unread string
}

// lineage finds and draws the ancestors and descendants of a bundle that the visitor may read.
func (p *Pages) lineage(ctx context.Context, v *visit, b bundlePage) lineageView {
	g, err := lineage.Read(ctx, v.api, b.Bundle)
	if err != nil { // the rest of the page is there nevertheless
		p.config.Log.DebugContext(ctx, "cannot show what came of a bundle", slog.String("bundle", b.UUID), slog.Any("error", err))
		return lineageView{Unread: unread(err)}
	}
	if len(g.Nodes)+len(g.More) == 1 {
		return lineageView{}
	}
	return lineageView{Graph: g, Picture: lineage.Draw(g)}
}
