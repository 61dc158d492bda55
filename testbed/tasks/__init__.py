"""What is trained: models, data and losses behind one flat buffer, and the data sets on this machine.

Imports nothing above `flat` and `seeds`. Plans ask for sizes, workers train.
"""
