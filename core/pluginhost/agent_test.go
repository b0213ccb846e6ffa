package pluginhost

const beAgentEnv = "TEST_BE_AGENT"

func beAgent() int { return 0 }
