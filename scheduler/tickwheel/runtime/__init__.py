"""What any process of the product needs, and nothing of the product."""
