"""Pictures of training runs and their evaluations, drawn without pyplot."""
