package agent

import "context"

// cleanups are the steps that undo what was opened, newest first. Each is
// bounded by the context that it is given.
type cleanups struct {
	steps []func(context.Context)
}

func (c *cleanups) add(step func(context.Context)) { c.steps = append(c.steps, step) }

// run does all steps, also when ctx has ended: then they cut off what remains.
func (c *cleanups) run(ctx context.Context) {
	for i := len(c.steps) - 1; i >= 0; i-- {
		c.steps[i](ctx)
	}
	c.steps = nil
}
