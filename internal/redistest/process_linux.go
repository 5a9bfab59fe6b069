package redistest

import "syscall"

func init() { childAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
