"""Commands that use the features of a server: tools, resources, prompts, tasks, subscriptions."""
