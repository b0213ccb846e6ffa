package raft

import (
	"fmt"
	"log"
	"log/slog"
)

// raftLog hands to slog what the raft library has to say. Fatal and Panic do not
// return, as the library expects; they end the server only: see Host.guarded.
type raftLog struct {
	log *slog.Logger
	end *log.Logger // panics with what it logged
}

func newRaftLog(to *slog.Logger) raftLog {
	return raftLog{log: to, end: slog.NewLogLogger(to.Handler(), slog.LevelError)}
}

func (l raftLog) Debug(v ...any)                   { l.log.Debug(fmt.Sprint(v...)) }
func (l raftLog) Debugf(format string, v ...any)   { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l raftLog) Info(v ...any)                    { l.log.Debug(fmt.Sprint(v...)) }
func (l raftLog) Infof(format string, v ...any)    { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l raftLog) Warning(v ...any)                 { l.log.Warn(fmt.Sprint(v...)) }
func (l raftLog) Warningf(format string, v ...any) { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l raftLog) Error(v ...any)                   { l.log.Error(fmt.Sprint(v...)) }
func (l raftLog) Errorf(format string, v ...any)   { l.log.Error(fmt.Sprintf(format, v...)) }
func (l raftLog) Fatal(v ...any)                   { l.end.Panic(v...) }
func (l raftLog) Fatalf(format string, v ...any)   { l.end.Panicf(format, v...) }
func (l raftLog) Panic(v ...any)                   { l.end.Panic(v...) }
func (l raftLog) Panicf(format string, v ...any)   { l.end.Panicf(format, v...) }
