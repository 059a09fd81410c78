"""Orders and balances of batches, side by side: are rare layouts learned better?"""
