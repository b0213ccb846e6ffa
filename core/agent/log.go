package agent

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/fairlead/fairlead/core/config"
)

// NewLogger returns a logger for cfg that writes to w, and its level, which
// may be changed while it is in use.
func NewLogger(cfg config.Log, w io.Writer) (*slog.Logger, *slog.LevelVar, error) {
	level := new(slog.LevelVar)
	if err := setLevel(level, cfg.Level); err != nil {
		return nil, nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	switch cfg.Format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), level, nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), level, nil
	}
	return nil, nil, fmt.Errorf("agent: log.format is %q: want text or json", cfg.Format)
}

// levelOf is the level of a configuration that was checked.
func levelOf(cfg *config.Config) slog.Level {
	var level slog.LevelVar
	_ = setLevel(&level, cfg.Log.Level)
	return level.Level()
}

func setLevel(v *slog.LevelVar, text string) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("agent: log.level is %q: want debug, info, warn or error", text)
	}
	v.Set(level)
	return nil
}
