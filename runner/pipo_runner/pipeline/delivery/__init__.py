"""How written packets become delivered: seen by checkers, confirmed, or settled downstream."""
