package health

import "time"

const (
	// saveEvery bounds how often changes are written.
	saveEvery = time.Second
	// refresh is how often the file is written anew though nothing changed: its
	// age tells how long ago all that passed.
	refresh = KeepFor / 5
)

// recall reads the file, as far as it can be believed.
func (r *Runner) recall() memory {
	if r.cfg.Path == "" {
		return memory{}
	}
	if r.bootID = readBootID(); r.bootID == "" {
		r.cfg.Log.Warn("what passes is not kept over a restart: the boot id cannot be read", "file", "/proc/sys/kernel/random/boot_id")
		return memory{}
	}
	m, err := loadMemory(r.cfg.Path, r.bootID)
	if err != nil {
		r.cfg.Log.Warn("all checks begin critical", "path", r.cfg.Path, "err", err)
	}
	return m
}

// keep writes the file after changes, now and then, and at the end. It is the
// only one to write it.
func (r *Runner) keep() {
	again := time.NewTimer(refresh)
	defer again.Stop()
	failed := false
	write := func() {
		r.mu.Lock()
		if !r.set { // the file still tells what the process before knew
			r.mu.Unlock()
			return
		}
		m := r.table.remember(r.bootID, r.cfg.Now())
		r.mu.Unlock()
		err := m.save(r.cfg.Path)
		if err != nil {
			r.metrics.saveFailures.Inc()
		}
		if err != nil && !failed {
			r.cfg.Log.Warn("what passes is not kept over a restart until this is mended", "path", r.cfg.Path, "err", err)
		}
		failed = err != nil
	}
	for {
		select {
		case <-r.ctx.Done():
			write()
			return
		case <-again.C:
		case <-r.save:
		}
		write()
		select {
		case <-r.ctx.Done():
		case <-time.After(saveEvery):
		}
		again.Reset(refresh)
	}
}
