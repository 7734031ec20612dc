package check

import (
	"context"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/registry"
)

// checkRegistry checks that the schema registry answers, if a format needs it. Whether the schemas
// of rows fit, the rows of the tables have shown.
func checkRegistry(ctx context.Context, cfg config.Config) []Finding {
	if key, value := cfg.Format.Registered(); !key && !value {
		return nil
	}
	if err := registry.Ping(ctx, cfg.Registry); err != nil {
		f := errorFinding("registry", "", err)
		f.Class = classOf(err)
		f.Required = "a schema registry that answers: without it no new schema gets an id"
		return []Finding{f}
	}
	return []Finding{found("registry", "", "answers")}
}
